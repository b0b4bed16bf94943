"""The place where layers with adaptive computation time give steps and remainders on request."""

import contextlib
import threading
from typing import NamedTuple

from keras import ops


class Halting(NamedTuple):
    """Steps and remainders of adaptive computation time, a tensor each, of one shape (B, T).

        ponder cost of a position = N + R

    Attributes:
        steps: int32, the number of steps N; 0 at padding.
        remainder: at least float32, what the probabilities of the steps before the last one leave,
            R = 1 - (h^1 + ... + h^{N-1}); 0 at padding. Of Tensor2Tensor's variants it is 0, too,
            at a position that does not halt within the most steps.

    Example:
        >>> import keras, keras_attn
        >>> from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
        >>> block = TransformerBlock(MultiHeadAttention(2, 8), FeedForward(32))
        >>> encoder = keras_attn.depth.ACT(block, max_steps=6)
        >>> _, halting = encoder(keras.ops.ones((3, 5, 16)), return_halting=True)
        >>> halting.steps.shape
        TensorShape([3, 5])

    Reference: [Graves, 2016](https://arxiv.org/abs/1603.08983), section 2, eq. 6 to 9.
    """

    steps: object
    remainder: object


class _Record(threading.local):
    """The function of a layer and its `Halting` that calls of this thread make; None for none."""

    function = None


_record = _Record()


@contextlib.contextmanager
def record_halting(function):
    """Call `function(layer, halting)` after each run of a layer in this scope.

    It is called in the program that computes the tensors, so that they may become its outputs.
    Those of an `ACTCell` are tensors of a loop's body. A scope outside is called before.
    """
    outer = _record.function

    def call(layer, halting):
        if outer is not None:
            outer(layer, halting)
        function(layer, halting)

    _record.function = call
    try:
        yield
    finally:
        _record.function = outer


def give_halting(layer, progress):
    """Give the steps and remainders of a run, the attributes of `progress`, to the open scopes."""
    if _record.function is not None:
        _record.function(layer, Halting(ops.cast(progress.steps, "int32"), progress.remainder))


def is_recorded():
    """Return True inside a `record_halting`."""
    return _record.function is not None


def call_with_halting(layer, call):
    """Return what `call()` returns, and the `Halting`s of its runs of `layer`, a list."""
    found = []

    def keep(of, halting):
        if of is layer:
            found.append(halting)

    with record_halting(keep):
        return call(), found
