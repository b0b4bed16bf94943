"""Keys and values kept between the steps of decoding."""

from keras import ops

from keras_attn.attention.cache import extend_cache
from keras_attn.ops.checks import check_sizes
from keras_attn.registry import Value, register


@register
class KVCache(Value):
    """Keeps the keys and values of one attention layer, so that a step costs one query.

        K = [k_1 ... k_t 0 ...], V = [v_1 ... v_t 0 ...]

    The state is explicit: a dict of `key` (B, N, M, H), `value` (B, N, M, Hv) and `index`, the
    number of keys so far; it goes in and comes out of the attention layer's call. Its size is
    fixed, so nothing is traced again; empty slots are never attended. Memory O(B N M H).

    The layer's pattern says what is kept, and what a step with one query reads:

    - The last keys only, where no later query meets others: `Local` keeps its `window` W. Position
      p is in slot p mod W, a step takes O(N W H) whatever `max_length` is, and the state never
      runs full.
    - All M keys, and a step computes with those that it may meet: `Strided`, `Fixed`,
      `BlockLocal2D`, `p | q`. XLA writes the new key in place; other graphs copy the state.
    - All, and all are read, O(N M H): `Causal`, `PerHead` of these, `LSH`, which would otherwise
      have to sort anew.

    Several new keys at once, as a prompt has, make a matrix of T by M scores, or T by M + T where
    the last keys are kept; a long prompt is better read in pieces. The columns of masks given to a
    call are positions from 0 on, whatever is kept. The scores that it returns are those of the
    slots, and of the T new keys after them where the last keys are kept and T > 1.

    Without a `max_length` the state grows by concatenation, keeps all keys, and its `index` is
    None. A graph on TensorFlow decodes faster so; XLA needs the fixed size.

    Args:
        max_length: int. Number of keys to keep at most; None for a state that grows.
        whole: bool. Whether to keep all of them even where the pattern needs the last only: for
            calls with `key_positions`, which put any key anywhere. These read all.

    Raises:
        ValueError: if `max_length` < 1.

    Example:
        >>> import keras_attn
        >>> from keras import ops
        >>> layer = keras_attn.layers.MultiHeadAttention(2, 8, pattern=keras_attn.patterns.Local(4))
        >>> layer.build((None, None, 16))
        >>> cache = keras_attn.memory.KVCache(max_length=1000).initial(layer, batch_size=1)
        >>> cache["key"].shape
        TensorShape([1, 2, 4, 8])
        >>> x = ops.ones((1, 1, 16))
        >>> output, cache = layer(x, x, cache=cache)

    Differs from the paper: none; a way to compute it.

    Reference: [Shazeer, 2019](https://arxiv.org/abs/1911.02150), section 2.4.
    """

    def __init__(self, max_length, whole=False):
        if isinstance(max_length, int):
            check_sizes(max_length=max_length)
        self.max_length = max_length
        self.whole = bool(whole)

    def initial(self, attention, batch_size):
        """An empty state for a `MultiHeadAttention` layer."""
        grows = self.max_length is None
        slots = 0 if grows else self._num_slots(attention.pattern)
        shape = (batch_size, attention.num_key_value_heads, slots)
        return {
            "key": ops.zeros((*shape, attention.key_dim), attention.compute_dtype),
            "value": ops.zeros((*shape, attention.value_dim), attention.compute_dtype),
            "index": None if grows else ops.convert_to_tensor(0, "int32"),
        }

    def extend(self, state, key, value):
        """The state with per-head `key` and `value` (B, N, T, H) in its next T slots."""
        return extend_cache(state, key, value)

    def _num_slots(self, pattern):
        kept = None if self.whole else pattern.cache_size()
        if kept is None:
            return self.max_length
        if isinstance(self.max_length, int):
            return min(self.max_length, kept)
        return ops.minimum(self.max_length, kept)

    def get_config(self):
        return {"max_length": self.max_length, "whole": self.whole}
