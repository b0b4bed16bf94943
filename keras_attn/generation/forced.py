"""Decoding with given first and last tokens, and with a minimum length."""

import numpy as np
from keras import ops

from keras_attn.generation.processors import Counter
from keras_attn.generation.wrapper import Wrapper
from keras_attn.ops.checks import check_sizes
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
        ValueError: if an argument is no id, or `min_length` is not below `max_length`.

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
        forced = {0: self.first_id, last: self.last_id}
        forced = {step: token for step, token in forced.items() if token is not None}
        return options.with_processor(_ForcedTokens(forced, self.min_length, options.eos_ids))


class _ForcedTokens(Counter):
    """Force tokens at their steps, given as a dict, and forbid end tokens that are too early."""

    def __init__(self, forced, min_length, eos_ids):
        self.forced, self.min_length, self.eos_ids = forced, min_length, eos_ids

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
