"""Decoding without repeated sequences of tokens."""

from keras import ops

from keras_attn.generation.processors import LogitsProcessor
from keras_attn.generation.wrapper import Wrapper
from keras_attn.ops.checks import check_sizes
from keras_attn.registry import register


@register
class NoRepeat(Wrapper):
    """No repeated n-grams: any strategy, which generates no sequence of n tokens twice.

        logits_v = -inf if y_{t-n+1} .. y_{t-1} v is already in y_1 .. y_{t-1}

    The tokens of a prompt count as generated. A sequence that no token may follow ends, unfinished,
    with score -inf. Time O(n L + V) a token, for L tokens so far.

    Use it for summaries, in which a model repeats sentences.

    Args:
        strategy: name or object of a decoding strategy.
        size: int. Number n of tokens, at least 1.
        renormalize: bool. If False, a token that would repeat keeps its mass.

    Raises:
        ValueError: if `size` < 1.

    Example:
        >>> import keras_attn
        >>> keras_attn.generation.NoRepeat("beam", 3)
        NoRepeat(Beam(), 3)

    Differs from the paper: none.

    Reference: [Paulus et al., 2017](https://arxiv.org/abs/1705.04304), section 2.5.
    """

    def __init__(self, strategy, size, renormalize=True):
        super().__init__(strategy, renormalize)
        check_sizes(size=size)
        self.size = size

    def extend(self, options):
        return options.with_processor(_NoRepeatedNGrams(self.size, options.max_length))


class _NoRepeatedNGrams(LogitsProcessor):
    """Forbid each token that follows an earlier occurrence of the last n - 1 tokens.

    The state (B, L) holds -1, and at its end the tokens so far.
    """

    def __init__(self, size, max_length):
        self.size, self.max_length = size, max_length

    def start(self, model, inputs, vocabulary_size):
        ids, padding_mask = inputs
        if not model.reads_prompt:
            return ops.full((ops.shape(ids)[0], self.max_length + self.size), -1, "int32")
        length = ops.shape(ids)[1]
        count = ops.sum(ops.cast(padding_mask, "int32"), axis=1, keepdims=True)
        indices = ops.arange(length, dtype="int32") - (length - count)
        moved = ops.take_along_axis(ids, ops.maximum(indices, 0), axis=1)
        moved = ops.where(indices < 0, -1, moved)
        fill = [[0, 0], [self.max_length + self.size, 0]]
        return ops.pad(moved, fill, constant_values=-1)

    def apply(self, logits, state):
        shape, before = ops.shape(logits), self.size - 1
        length = ops.shape(state)[-1]
        last = state[..., before:]  # (..., L - n + 1), the last token of each n-gram
        is_forbidden = last >= 0
        for k in range(before):
            same = ops.equal(state[..., k : length - before + k], state[..., k - before, None])
            is_forbidden = ops.logical_and(is_forbidden, same)
            is_forbidden = ops.logical_and(is_forbidden, state[..., k : length - before + k] >= 0)
        rows = ops.reshape(is_forbidden, (-1, ops.shape(last)[-1]))
        tokens = ops.reshape(ops.maximum(last, 0), ops.shape(rows))
        first = ops.arange(ops.shape(rows)[0], dtype="int32")[:, None] * shape[-1]
        indices = ops.reshape(first + tokens, (-1, 1))
        counts = ops.scatter(
            indices, ops.cast(ops.reshape(rows, (-1,)), "int32"), (ops.shape(rows)[0] * shape[-1],)
        )
        return ops.where(ops.reshape(counts, shape) > 0, -float("inf"), logits)

    def advance(self, state, tokens):
        return ops.concatenate([state[..., 1:], tokens[..., None]], axis=-1)
