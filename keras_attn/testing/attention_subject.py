"""The attention layer under test."""

import numpy as np
from keras import ops

from keras_attn.scores import Additive, DotProduct
from keras_attn.testing.numbers import random
from keras_attn.testing.running import NotApplicable
from keras_attn.testing.subject import Subject, arrays

BATCH = 2


class AttentionSubject(Subject):
    """An attention layer under test: who may meet whom in it, and how it is called.

    Args:
        layer: the layer.
        pattern: the pattern that it is to follow.
        hidden_dim: int. Width D of queries, keys and values.
        length: int. Number of keys S in the small checks.
    """

    def __init__(self, layer, pattern, hidden_dim, length):
        self.pattern, self.length = pattern, length
        self.hidden_dim = hidden_dim
        self.query_length = length // 2
        self.query = random(BATCH, self.query_length, hidden_dim)
        self.value = random(BATCH, length, hidden_dim, seed=1)
        super().__init__(layer, (self.query, self.value))

    def real(self, value):
        """A padding mask for `value`: the last two keys of the first row are padding."""
        mask = np.ones(value.shape[:2], bool)
        mask[0, -2:] = False
        return mask

    def masks(self, inputs):
        query, value = inputs
        return self.mask_arguments(query, value, self.real(value))

    def mask_arguments(self, query, value, real=None, pairs=None):
        """The arguments that give the layer a padding mask (B, S) and a mask of pairs (B, T, S)."""
        found = {}
        if real is not None and self.accepts("value_mask"):
            found["value_mask"], real = real, None
        if real is not None or pairs is not None:
            self.need("attention_mask")
            mask = np.ones((value.shape[0], query.shape[1], value.shape[1]), bool)
            mask &= True if real is None else real[:, None]
            found["attention_mask"] = mask & (True if pairs is None else pairs)
        return found

    def attend(
        self, layer, query, value, key=None, *, real=None, pairs=None, causal=False, scores=False,
        training=False,
    ):  # fmt: skip
        """The output, an array; or with `scores` a pair of arrays."""
        arguments = self.mask_arguments(query, value, real, pairs)
        if key is not None:
            self.need("key")
            arguments["key"] = ops.convert_to_tensor(key)
        for name, wanted in (("use_causal_mask", causal), ("return_attention_scores", scores)):
            if wanted:
                self.need(name)
                arguments[name] = True
        results = self.raw_call(layer, query, value, training=training, **arguments)
        return tuple(arrays(results)) if scores else arrays(results)[0]

    def need(self, name):
        if not self.accepts(name):
            raise NotApplicable(f"the layer takes no `{name}`")

    def allowed(self, query_length, num_keys, causal=False):
        """The pattern's mask, bool (N or 1, T, S): the queries are the last T of S positions."""
        keys = np.arange(num_keys)
        queries = keys[num_keys - query_length :]
        mask = self.pattern.mask(ops.convert_to_tensor(queries), ops.convert_to_tensor(keys))
        past = keys <= queries[:, None] if causal else np.ones((query_length, num_keys), bool)
        return past[None] if mask is None else past & ops.convert_to_numpy(mask)[0]

    def need_positions(self):
        if not self.pattern.is_of_positions:
            raise NotApplicable("the pattern is not a function of positions alone")

    def causal_flags(self):
        """Values of `use_causal_mask` that make a difference."""
        has_flag = self.accepts("use_causal_mask") and not self.pattern.causal
        return [False, True] if has_flag else [False]

    def score_variants(self):
        return [False, True] if self.accepts("return_attention_scores") else [False]

    def dropping(self):
        """A copy with dropout, or None if the layer has none."""
        has_dropout = "dropout" in self.config and self.accepts("training")
        return self.copy(dropout=0.4) if has_dropout else None

    def is_of_content(self):
        """True if equal keys are known to have equal scores at any position."""
        score = getattr(self.layer, "score", None)
        is_of_content = score is None or isinstance(score, (Additive, DotProduct))
        return is_of_content and position_of_heads(self.layer) is None


def position_of_heads(layer):
    """The position layer of queries and keys; None without one."""
    position = getattr(layer, "position", None)
    return position if getattr(position, "acts_on_heads", False) else None
