"""A scope that records random numbers, variables and losses so that a function can run twice."""

import threading

import keras
from keras import ops

from keras_attn.compat.variable_values import stored_value


class _Thread(threading.local):
    scope = None  # the innermost one


_thread = _Thread()


def in_first_run():
    """Return True if the innermost scope is a first run, whose inner results nobody needs."""
    return _thread.scope is not None and _thread.scope.is_first_run


def mark_remat():
    """Record in the innermost scope, and so in the outer ones, that it contains `remat`."""
    if _thread.scope is not None:
        _thread.scope.contains_remat = True


class RematScope(keras.StatelessScope):
    """Stateless scope that holds back changes of variables and losses until `commit`.

    A second scope that starts from the `states` of the first one gives the function the same
    variables again, above all the state of every random number generator. Trainable weights are not
    recorded: they are read where they are used, so that gradients reach them.

    Args:
        states: list of pairs of a variable and its value.
        delay: function applied to the integer states, those of generators, before they are used.
        is_first_run: bool. True if all is computed again for the gradient, so none is needed here.

    Attributes:
        states: pairs of each integer variable that was read or changed, and its value before.
        contains_remat: bool. True if something inside has a gradient that computes it again.
    """

    def __init__(self, states=(), delay=None, is_first_run=False):
        super().__init__(collect_losses=True, initialize_variables=False)
        self.states = []
        self.is_first_run = is_first_run
        self.contains_remat = False
        self._changed = {}
        self._delay = delay
        for variable, value in states:
            self._record(variable, value)

    def __enter__(self):
        self._outer, _thread.scope = _thread.scope, self
        return super().__enter__()

    def __exit__(self, *error):
        _thread.scope = self._outer
        if self.contains_remat:
            mark_remat()
        super().__exit__(*error)

    def get_current_value(self, variable):
        value = super().get_current_value(variable)
        if value is not None:
            return value
        is_recorded = not (variable.trainable or _is_float(variable))
        if not is_recorded and not (variable.trainable and self.is_first_run):
            return self._value_outside(variable)
        value = self.value_before(variable)
        if value is None:
            return None
        return self._record(variable, value) if is_recorded else ops.stop_gradient(value)

    def add_update(self, update):
        variable, _ = update
        if variable.trainable:
            raise ValueError(
                "A function that the backward pass computes again must not assign to trainable "
                f"weights. Received: an assignment to {variable.path}."
            )
        if all(recorded is not variable for recorded, _ in self.states):
            before = self.value_before(variable)
            if before is not None:
                self._record(variable, before)
        self._changed[id(variable)] = variable
        super().add_update(update)

    def changes(self):
        """Return pairs of a variable and its new value."""
        return [(variable, self.state_mapping[key]) for key, variable in self._changed.items()]

    def _record(self, variable, value):
        self.states.append((variable, value))
        if self._delay is not None and not _is_float(variable):
            value = self._delay(value)
        self.state_mapping[id(variable)] = value
        return value

    def _value_outside(self, variable):
        """Return the value in the enclosing scope; None if there is none."""
        scope = self.original_scope
        return None if scope is None else scope.get_current_value(variable)

    def value_before(self, variable):
        """Return the value in the variable's own precision; None while Keras only infers shapes."""
        value = self._value_outside(variable)
        if value is None and stored_value(variable) is not None:
            value = ops.copy(stored_value(variable))
        if value is None and self.original_scope is None:
            raise ValueError(
                "A function that the backward pass computes again must not create variables: build "
                "its layers before, and draw random numbers with a `keras.random.SeedGenerator`. "
                f"Received: a new variable {variable.path}."
            )
        return value


def commit(changes, losses, add_loss):
    """Assign new values to variables and add losses that a scope has held back."""
    for variable, value in changes:
        variable.assign(value)
    for loss in losses:
        add_loss(loss)


def _is_float(variable):
    return keras.backend.is_float_dtype(variable.dtype)
