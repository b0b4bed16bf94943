"""`couple` on TensorFlow: the backward pass reconstructs what each step was given."""

import tensorflow as tf

from keras_attn.backend.remat_scope import Record, is_recomputed, mark_recomputed
from keras_attn.backend.tensorflow.remat import after, first_run, gradients, place


def couple(functions, first, second, operands):
    mark_recomputed()
    if is_recomputed():
        pair, records, whole = _forward(functions, first, second, operands)
        return pair, _losses(records), whole.changes()
    whole = None

    @tf.custom_gradient
    def run(first, second, *operands):
        nonlocal whole
        pair, records, whole = _forward(functions, first, second, operands)
        steps = [(f, r.states, len(r.losses)) for f, r in zip(functions, records, strict=True)]

        def gradient(*upstream, variables=()):
            backward = _Backward(pair, upstream, operands, variables)
            for step in reversed(steps):
                backward.undo(*step)
            by_tensors = [*backward.by_pair, *place(backward.by_floats, operands)]
            return (by_tensors, backward.by_variables) if variables else by_tensors

        return (*pair, *_losses(records)), gradient

    first, second, *losses = run(first, second, *operands)
    return (first, second), losses, whole.changes()


def _forward(functions, first, second, operands):
    """The last pair, the record of each step, and one of all that changes."""
    records = []
    with Record(is_first=True) as whole:
        for function in functions:
            change, record = first_run(function, (second, *operands))
            for variable, value in record.changes():
                variable.assign(value)
            first, second = second, tf.stop_gradient(first) + tf.cast(change, first.dtype)
            records.append(record)
    return (first, second), records, whole


def _losses(records):
    return [loss for record in records for loss in record.losses]


class _Backward:
    """Where the backward pass stands: a pair of streams, and the gradients so far."""

    def __init__(self, pair, upstream, operands, variables):
        self.pair, self.by_pair = pair, upstream[:2]
        self.by_losses = list(upstream[2:])
        self.operands = operands
        self.by_floats = [tf.zeros_like(x) for x in operands if x.dtype.is_floating]
        self.variables = variables
        self.by_variables = [None] * len(variables)

    def undo(self, function, states, num_losses):
        """From (b, a + f(b)) back to (a, b)."""
        (b, total), (by_b, by_total) = self.pair, self.by_pair
        late = after(by_total)
        b, *again = (late(x) if x.dtype.is_floating else x for x in (b, *self.operands))
        floats = [b, *(x for x in again if x.dtype.is_floating)]
        with tf.GradientTape() as tape, Record(states, late) as record:
            tape.watch(floats)
            change = tf.cast(function(b, *again), total.dtype)
        read = {variable.ref() for variable in tape.watched_variables()}
        read = [i for i, variable in enumerate(self.variables) if variable.ref() in read]
        by_losses = [self.by_losses.pop() for _ in range(num_losses)][::-1]
        (more, *by_floats), by_variables = gradients(
            tape,
            [change, *record.losses],
            [by_total, *by_losses],
            floats,
            [self.variables[i] for i in read],
        )
        self.pair, self.by_pair = (total - change, b), (by_total, by_b + more)
        self.by_floats = [x + y for x, y in zip(self.by_floats, by_floats, strict=True)]
        for i, by_variable in zip(read, by_variables, strict=True):
            self.by_variables[i] = _sum(self.by_variables[i], by_variable)


def _sum(total, part):
    """Of gradients, which may be sparse."""
    if total is None:
        return part
    return tf.convert_to_tensor(total) + tf.convert_to_tensor(part)
