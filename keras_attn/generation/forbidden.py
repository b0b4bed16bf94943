"""Decoding without some tokens."""

import numpy as np
from keras import ops

from keras_attn.generation.processors import Counter
from keras_attn.generation.wrapper import Wrapper
from keras_attn.ops.checks import check_sizes, check_that
from keras_attn.registry import register


@register
class Forbidden(Wrapper, Counter):
    """Forbidden tokens: any strategy, which never generates some tokens.

        logits_v = -inf for each v in token_ids

    With `renormalize` the score is the log-probability among the other tokens. Without it the
    forbidden tokens keep their mass: the score is the model's own log-probability, and a beam
    search prefers hypotheses that leave little mass to forbidden tokens. Sampling always
    normalises again. Time O(V) a token.

    Use it for models that give probability to padding, or to other tokens that are no text.

    Args:
        strategy: name or object of a decoding strategy.
        token_ids: list of ints.
        renormalize: bool. If False, forbidden tokens keep their mass.

    Raises:
        ValueError: if `token_ids` are not ids of the model's vocabulary, or all of them.

    Example:
        >>> import keras_attn
        >>> keras_attn.generation.Forbidden("beam", [0, 7])
        Forbidden(Beam(), [0, 7])

    Differs from the paper: any tokens. Marian, the paper's system, forbids its padding, and
        renormalises.

    Reference: [Junczys-Dowmunt et al., 2018](https://arxiv.org/abs/1804.00344), section 2.
    """

    def __init__(self, strategy, token_ids, renormalize=True):
        super().__init__(strategy, renormalize)
        check_that(isinstance(token_ids, (list, tuple)), "a list of ints", token_ids=token_ids)
        for token in token_ids:
            check_sizes(least=0, token_ids=token)
        self.token_ids = [int(token) for token in token_ids]

    def extend(self, options):
        return options.with_processor(self)

    def start(self, model, inputs, vocabulary_size):
        wanted = f"some, not all, of the ids from 0 to {vocabulary_size - 1}"
        unknown = [token for token in self.token_ids if token >= vocabulary_size]
        count = len(set(self.token_ids))
        check_that(not unknown and count < vocabulary_size, wanted, token_ids=self.token_ids)
        return super().start(model, inputs, vocabulary_size)

    def apply(self, logits, state):
        is_forbidden = np.isin(np.arange(logits.shape[-1]), self.token_ids)
        return ops.where(is_forbidden, -float("inf"), logits)
