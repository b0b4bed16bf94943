"""Keys and values kept between the steps of decoding."""

from keras import ops

from keras_attn.axis import Value, register
from keras_attn.ops.cache import extend_cache


@register
class KVCache(Value):
    """Keeps the keys and values of one attention layer, so that a step costs one query.

        K = [k_1 ... k_t 0 ...], V = [v_1 ... v_t 0 ...]

    The state is explicit: a dict of `key` (B, N, M, H), `value` (B, N, M, Hv) and the number of
    filled slots `index`; it goes in and comes out of the attention layer's call. Its size is
    fixed, so nothing is traced again; slots beyond `index` are never attended. Memory
    O(B N M H), a step O(N M H).

    Without a `max_length` the state grows by concatenation, holds filled slots only, and its
    `index` is None. A graph on TensorFlow decodes faster so; XLA needs the fixed size.

    Args:
        max_length: int. Number of slots M; None for a state that grows.

    Raises:
        ValueError: if `max_length` < 1.

    Example:
        >>> import keras_attn
        >>> from keras import ops
        >>> layer = keras_attn.layers.MultiHeadAttention(2, 8, pattern="causal")
        >>> layer.build((None, None, 16))
        >>> cache = keras_attn.memory.KVCache(max_length=10).initial(layer, batch_size=1)
        >>> x = ops.ones((1, 1, 16))
        >>> output, cache = layer(x, x, cache=cache)

    Differs from the paper: none; a way to compute it.

    Reference: [Shazeer, 2019](https://arxiv.org/abs/1911.02150), section 2.4.
    """

    def __init__(self, max_length):
        if isinstance(max_length, int) and max_length < 1:
            raise ValueError(f"`max_length` must be at least 1. Received: max_length={max_length}.")
        self.max_length = max_length

    def initial(self, attention, batch_size):
        """An empty state for a `MultiHeadAttention` layer."""
        grows = self.max_length is None
        shape = (batch_size, attention.num_key_value_heads, 0 if grows else self.max_length)
        return {
            "key": ops.zeros((*shape, attention.key_dim), attention.compute_dtype),
            "value": ops.zeros((*shape, attention.value_dim), attention.compute_dtype),
            "index": None if grows else ops.convert_to_tensor(0, "int32"),
        }

    def extend(self, state, key, value):
        """The state with per-head `key` and `value` (B, N, T, H) in its next T slots."""
        return extend_cache(state, key, value)

    def get_config(self):
        return {"max_length": self.max_length}
