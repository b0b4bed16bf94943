"""The cache of keys and values between the steps of decoding."""

from keras import ops

from keras_attn.attention.linear import initial_sums
from keras_attn.ops.checks import check_sizes
from keras_attn.registry import Value, register


@register
class KVCache(Value):
    """Keep the keys and values of one attention layer, so that a decoding step costs one query.

        K = [k_1 ... k_t 0 ...], V = [v_1 ... v_t 0 ...]

    The state is explicit: a dict of `key` (B, N, M, H), `value` (B, N, M, Hv) and `index`, the
    number of keys so far; it is an argument and a result of the attention layer's call. Its size is
    fixed, so nothing is retraced; empty slots are never attended. Memory O(B N M H).

    The layer's pattern determines the kept keys, and the keys that a step with one query reads:

    - `Local` keeps the last `window` W keys only. Position p is in slot p mod W, a step takes
      O(N W H) for any `max_length`, and the cache never runs full. `Dilated`,
      `BlockLocal1D`, `AdaptiveSpan` and `PerHead` of windows do likewise.
    - `Sinks(g, W)` and `Local(W) | Global(g, causal=True)` keep the first g keys and the last W, in
      g + W slots: position p is in slot p if p < g, else in slot g + (p - g) mod W.
    - `Strided`, `Fixed`, `BlockLocal2D`, `Random`, `Prefix` and a `p | q` of these keep all M keys,
      and a step gathers those that it may attend to. XLA writes the new key in place; other graphs
      copy the state. The factors "local" and "block" alone are windows.
    - `Causal` with a score whose weights are products of R features, such as `Kernel`, keeps no
      keys, but `sums` (B, N, R, Hv + 1) over them, and an `index`. A step takes O(N R Hv) in time
      and memory for any `max_length`, and returns no scores. New keys have the positions of the
      queries, and follow all earlier keys.
    - All other patterns keep and read all keys, O(N M H): `Causal`, other `PerHead`, and `LSH`,
      which would sort again.

    A cache that keeps all keys runs full after `max_length` of them: a further key is a
    `ValueError`, or in a graph, which cannot know, takes the place of the first one.

    Several new keys at once, such as a prompt's, make a matrix of T by M scores, or T by M + T if
    only the last keys are kept; read a long prompt in pieces. The columns of masks given to a call
    are positions from 0 on. Returned scores are those of the slots, followed by those of the T new
    keys if only the last keys are kept and T > 1.

    Without a `max_length` the state grows by concatenation, keeps all keys, and its `index` is
    None. A TensorFlow graph decodes faster that way; XLA needs the fixed size.

    Use it for generation token by token, without computing earlier tokens again.

    Args:
        max_length: int. Number of keys to keep at most; None for a state that grows.
        whole: bool. If True, all keys are kept for any pattern and score: for calls with
            `key_positions`, which may move any key, and read all keys.

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
        if max_length is not None and not ops.is_tensor(max_length):
            check_sizes(max_length=max_length)
        self.max_length = max_length
        self.whole = bool(whole)

    def initial(self, attention, batch_size):
        """Return an empty state for a `MultiHeadAttention` layer.

        Use it with layers of the same pattern only: no error shows that a state of another window
        was passed.
        """
        if not hasattr(attention, "num_key_value_heads"):
            raise ValueError(
                "`attention` must be a `MultiHeadAttention`; the cache of a depth or a model is "
                f"its `initial_cache`. Received: attention={attention!r}."
            )
        if can_keep_sums(attention) and not self.whole:
            sizes = attention.num_heads, attention.key_dim, attention.value_dim
            return initial_sums(attention.score, batch_size, *sizes, attention.compute_dtype)
        grows = self.max_length is None
        slots = 0 if grows else self.max_length
        kept = None if self.whole or grows else attention.pattern.kept_keys.size
        if kept is not None:
            slots = min(slots, kept) if isinstance(slots, int) else ops.minimum(slots, kept)
        shape = (batch_size, attention.num_key_value_heads, slots)
        return {
            "key": ops.zeros((*shape, attention.key_dim), attention.compute_dtype),
            "value": ops.zeros((*shape, attention.value_dim), attention.compute_dtype),
            "index": None if grows else ops.convert_to_tensor(0, "int32"),
        }


def can_keep_sums(attention):
    """Return True if sums over the keys can replace the keys of an attention layer."""
    score = getattr(attention, "score", None)
    if score is None or not score.is_linear or attention.sinks:
        return False
    return attention.pattern.simple_rule == "causal"
