"""Reversible streams on TensorFlow: the backward pass reconstructs the input of each step."""

import tensorflow as tf

from keras_attn.backend.remat_scope import RematScope, in_first_run, mark_remat
from keras_attn.backend.tensorflow import remat
from keras_attn.backend.tensorflow.delays import delay_until


def reversible_tensors(functions, first, second, operands, add_loss):
    mark_remat()
    if in_first_run():
        pair, scopes, whole = _forward(functions, first, second, operands)
        return pair, _losses(scopes), whole.changes()
    whole = None

    @tf.custom_gradient
    def run(first, second, *operands):
        nonlocal whole
        pair, scopes, whole = _forward(functions, first, second, operands)
        steps = [(f, s.states, len(s.losses)) for f, s in zip(functions, scopes, strict=True)]

        def gradient(*upstream, variables=()):
            backward = _Backward(pair, upstream, operands, variables)
            for step in reversed(steps):
                backward.undo(*step)
            by_operands = remat.with_none_for_integers(backward.by_floats, operands)
            by_tensors = [*backward.by_pair, *by_operands]
            return (by_tensors, backward.by_variables) if variables else by_tensors

        return (*pair, *_losses(scopes)), gradient

    first, second, *losses = run(first, second, *operands)
    return (first, second), losses, whole.changes()


def _forward(functions, first, second, operands):
    """Return the last pair, the scope of each step, and a scope of all changes."""
    scopes = []
    with RematScope(is_first_run=True) as whole:
        for function in functions:
            change, scope = remat.first_run(function, (second, *operands))
            for variable, value in scope.changes():
                variable.assign(value)
            first, second = second, tf.stop_gradient(first) + tf.cast(change, first.dtype)
            scopes.append(scope)
    return (first, second), scopes, whole


def _losses(scopes):
    return [loss for scope in scopes for loss in scope.losses]


class _Backward:
    """State of the backward pass: the pair of streams, and the gradients so far."""

    def __init__(self, pair, upstream, operands, variables):
        self.pair, self.by_pair = pair, upstream[:2]
        self.by_losses = list(upstream[2:])
        self.operands = operands
        self.by_floats = [tf.zeros_like(x) for x in operands if x.dtype.is_floating]
        self.variables = variables
        self.by_variables = [None] * len(variables)

    def undo(self, function, states, num_losses):
        """Go from (b, a + f(b)) back to (a, b)."""
        (b, total), (by_b, by_total) = self.pair, self.by_pair
        delay = delay_until(by_total)
        b, *again = (delay(x) if x.dtype.is_floating else x for x in (b, *self.operands))
        floats = [b, *(x for x in again if x.dtype.is_floating)]
        with tf.GradientTape() as tape, RematScope(states, delay) as scope:
            tape.watch(floats)
            change = tf.cast(function(b, *again), total.dtype)
        read = {variable.ref() for variable in tape.watched_variables()}
        read = [i for i, variable in enumerate(self.variables) if variable.ref() in read]
        by_losses = [self.by_losses.pop() for _ in range(num_losses)][::-1]
        results, upstream = [change, *scope.losses], [by_total, *by_losses]
        variables = [self.variables[i] for i in read]
        by_all, by_variables = remat.gradients(tape, results, upstream, floats, variables)
        more, *by_floats = by_all
        self.pair, self.by_pair = (total - change, b), (by_total, by_b + more)
        self.by_floats = [x + y for x, y in zip(self.by_floats, by_floats, strict=True)]
        for i, part in zip(read, by_variables, strict=True):
            total = self.by_variables[i]
            if total is not None:  # either may be sparse
                part = tf.convert_to_tensor(total) + tf.convert_to_tensor(part)
            self.by_variables[i] = part
