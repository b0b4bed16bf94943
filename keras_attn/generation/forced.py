"""Decoding with given first and last tokens, and with a minimum length."""

import numpy as np
from keras import ops

from keras_attn.generation.processors import Counter
from keras_attn.generation.wrapper import Wrapper
from keras_attn.ops.checks import check_sizes, check_that
from keras_attn.registry import register


@register
class Forced(Wrapper):
    """Forced tokens: any strategy, which generates given tokens at the first and last position.

        y_1 = first_id,   y_max_length = last_id,   y_t != eos_id for t <= min_length

    A forced token adds nothing to the score. Time O(V) a token.

    Use it for models that were trained with a first token, such as the language of a translation.

    Args:
        strategy: name or object of a decoding strategy.
        first_id: int. The first token that is generated; None for any.
        last_id: int. The token at `max_length`, of sequences that did not end before; None for any.
        min_length: int. Number of tokens that a sequence has at least before its end token.
        renormalize: bool. If False, an end token that is too early keeps its mass.

    Raises:
        ValueError: if an argument is no id of the model's vocabulary, if `min_length` is not below
            `max_length`, or if `max_length` is 1 and the first token is not the last one.

    Example:
        >>> import keras_attn
        >>> keras_attn.generation.Forced("beam", last_id=3)
        Forced(Beam(), last_id=3)

    Differs from the paper: the tokens are arguments; the paper has one for each language.

    Reference: [Tang et al., 2020](https://arxiv.org/abs/2008.00401), section 3.
    """

    def __init__(self, strategy, first_id=None, last_id=None, min_length=0, renormalize=True):
        super().__init__(strategy, renormalize)
        for name, token in {"first_id": first_id, "last_id": last_id}.items():
            if token is not None:
                check_sizes(least=0, **{name: token})
        check_sizes(least=0, min_length=min_length)
        self.first_id, self.last_id, self.min_length = first_id, last_id, min_length

    def extend(self, options):
        last = options.max_length - 1
        if self.min_length > last:
            raise ValueError(
                "`min_length` must be below `max_length`. "
                f"Received: min_length={self.min_length}, max_length={options.max_length}."
            )
        ends = [(0, self.first_id), (last, self.last_id)]
        forced = dict(pair for pair in reversed(ends) if pair[1] is not None)
        is_kept = self.last_id is None or forced[last] == self.last_id
        check_that(is_kept, f"{self.first_id}, the only token", last_id=self.last_id)
        names = {self.first_id: "first_id", self.last_id: "last_id"}
        processor = _ForcedTokens(forced, names, self.min_length, options.eos_ids)
        return options.with_processor(processor)


class _ForcedTokens(Counter):
    """Force tokens at their steps, given as a dict, and forbid end tokens that are too early.

    `names` has the argument of each token, for errors.
    """

    def __init__(self, forced, names, min_length, eos_ids):
        self.forced, self.names = forced, names
        self.min_length, self.eos_ids = min_length, eos_ids

    def start(self, model, inputs, vocabulary_size):
        for token in self.forced.values():
            wanted = f"below {vocabulary_size}"
            check_that(token < vocabulary_size, wanted, **{self.names[token]: token})
        return super().start(model, inputs, vocabulary_size)

    def apply(self, logits, state):
        columns, state = np.arange(logits.shape[-1]), state[..., None]
        if self.min_length:
            is_end = np.isin(columns, self.eos_ids)
            is_early = ops.logical_and(state < self.min_length, is_end)
            logits = ops.where(is_early, -float("inf"), logits)
        for step, token in self.forced.items():
            only = np.where(columns == token, 0.0, -np.inf).astype("float32")
            logits = ops.where(ops.equal(state, step), only, logits)
        return logits
