"""What a function draws, changes and adds to the loss, kept so that it can run again alike."""

import threading

import keras
from keras import ops

from keras_attn.compat.variable_values import stored_value

_thread = threading.local()


def is_recomputed():
    """Whether the innermost record is of a first run, whose inner results nobody will need."""
    record = getattr(_thread, "record", None)
    return record is not None and record.is_first


def mark_recomputed():
    """Tells the innermost record, and so those around it, that something inside is recomputed."""
    record = getattr(_thread, "record", None)
    if record is not None:
        record.recomputes = True


class Record(keras.StatelessScope):
    """Inside, a function changes no variable and adds to no loss: both wait in the record.

    A second record that starts from the `states` of the first lets the function see what it saw
    before, above all the state of every random number generator. Trainable weights are not among
    them: they are read where they are used, so that gradients reach them.

    Args:
        states: list of pairs of a variable and its value.
        late: function applied to the integer states, those of generators, before they are used.
        is_first: bool. Whether all inside is computed again for the gradient, so that no gradient
            need reach the weights from here.

    Attributes:
        recomputes: bool. Whether something inside has a gradient that computes it again.
    """

    def __init__(self, states=(), late=None, is_first=False):
        super().__init__(collect_losses=True, initialize_variables=False)
        self.states = []
        self.is_first = is_first
        self.recomputes = False
        self._changed = {}
        self._late = late
        for variable, value in states:
            self._keep(variable, value)

    def __enter__(self):
        self._outer = getattr(_thread, "record", None)
        _thread.record = self
        return super().__enter__()

    def __exit__(self, *error):
        _thread.record = self._outer
        if self.recomputes:
            mark_recomputed()
        super().__exit__(*error)

    def get_current_value(self, variable):
        value = super().get_current_value(variable)
        if value is not None:
            return value
        if not (variable.trainable or _is_float(variable)):
            value = self._value_before(variable)
            return None if value is None else self._keep(variable, value)
        if variable.trainable and self.is_first:
            value = self._value_before(variable)
            return None if value is None else ops.stop_gradient(value)
        return self._outside(variable)

    def add_update(self, update):
        variable, _ = update
        if variable.trainable:
            raise ValueError(
                "What is computed again in the backward pass may not assign to its trainable "
                f"weights. Received: an assignment to {variable.path}."
            )
        if all(kept is not variable for kept, _ in self.states):
            before = self._value_before(variable)
            if before is not None:
                self._keep(variable, before)
        self._changed[id(variable)] = variable
        super().add_update(update)

    def changes(self):
        """Pairs of a variable and its new value."""
        return [(variable, self.state_mapping[key]) for key, variable in self._changed.items()]

    def _keep(self, variable, value):
        self.states.append((variable, value))
        if self._late is not None and not _is_float(variable):
            value = self._late(value)
        self.state_mapping[id(variable)] = value
        return value

    def _outside(self, variable):
        """The value in the scope around this one, None if there is none."""
        scope = self.original_scope
        return None if scope is None else scope.get_current_value(variable)

    def _value_before(self, variable):
        """The value as it is stored, whatever precision a layer computes in.

        None where Keras only asks for shapes and has made no values yet.
        """
        value = self._outside(variable)
        if value is None and stored_value(variable) is not None:
            value = ops.copy(stored_value(variable))
        if value is None and self.original_scope is None:
            raise ValueError(
                "What is computed again in the backward pass may not make variables: layers must "
                "be built before, and random numbers be drawn with a `keras.random.SeedGenerator`."
                f" Received: a new variable {variable.path}."
            )
        return value


def _is_float(variable):
    return keras.backend.is_float_dtype(variable.dtype)
