"""Signatures of causal models that read a stream of tokens without end."""

import tensorflow as tf

from keras_attn.export.signatures.model_functions import ModelFunctions, end_signature, ends_of


class TokenStream(ModelFunctions):
    """Causal model as graph functions that read a stream without end; the client holds the state.

        logits_t, state_{t+1} = model(tokens_t, state_t)

    The state has the same size after any number of tokens: the keys and values that the pattern
    keeps, float32 (B, L, N, M, H) for L layers, and `index`, the number of tokens so far. A call
    reads one token or several, as many in each row, without padding. `end_tokens` gives the tokens
    after which a client that generates stops.

    Args:
        model: a `CausalLanguageModel` without a memory, whose layers have equal heads and a pattern
            with a cache of fixed size, such as `Sinks` or `Local`, and whose positions have no
            limit.
        eos_id: int, or a list of several. The token that ends a sequence, by default 3; -1 for
            none.

    Raises:
        ValueError: if a cache would grow with the stream, or the layers' caches differ in shape.

    Example:
        >>> import keras_attn
        >>> from keras_attn.layers import FeedForward, MultiHeadAttention, TokenEmbedding
        >>> attention = MultiHeadAttention(
        ...     2, 4, pattern=keras_attn.patterns.Sinks(2, 6), position="rotary")
        >>> block = keras_attn.layers.TransformerBlock(attention, FeedForward(16))
        >>> stream = keras_attn.export.TokenStream(keras_attn.models.CausalLanguageModel(
        ...     TokenEmbedding(50, 8), keras_attn.depth.Stack([block])))
        >>> outputs = stream.step([[5, 7, 9]], **stream.initial_state(1))
        >>> outputs["logits"].shape, outputs["key"].shape, int(outputs["index"])
        (TensorShape([1, 3, 50]), TensorShape([1, 1, 2, 8, 4]), 3)

    Reference: [Xiao et al., 2023](https://arxiv.org/abs/2309.17453), section 3.2.
    """

    def __init__(self, model, eos_id=None):
        super().__init__(model)
        sizes = _cache_sizes(model)

        def initial_state(batch_size):
            """Return the state of `batch_size` rows before the first token."""
            cache = model.depth.initial_cache(batch_size, max(sizes), whole=False)
            return _state(cache)

        def step(token_ids, key, value, index):
            """Return the `logits` [B, T, V] after each of `token_ids` [B, T], and the next state.

            `key`, `value` [B, L, N, M, H] and `index` [] come from `initial_state` or a step.
            """
            dtype = model.depth.compute_dtype
            pairs = (tf.unstack(tf.cast(x, dtype), axis=1) for x in (key, value))
            layers = [{"attention": {"key": k, "value": v}} for k, v in zip(*pairs, strict=True)]
            positions = index + tf.range(tf.shape(token_ids)[1])
            cache = {"index": index, "layers": layers}
            logits, cache = model.step(self.known_ids(token_ids), {}, cache, positions)
            return {"logits": tf.cast(logits, tf.float32), **_state(cache)}

        state = _state(model.depth.initial_cache(1, max(sizes), whole=False))
        inputs = [tf.TensorSpec([None, None], tf.int32, "token_ids")]
        for name in ("key", "value"):
            inputs.append(tf.TensorSpec([None, *state[name].shape[1:]], tf.float32, name))
        inputs.append(tf.TensorSpec([], tf.int32, "index"))
        rows = [tf.TensorSpec([], tf.int32, "batch_size")]
        self.initial_state = tf.function(initial_state, rows, autograph=False)
        self.step = tf.function(step, inputs, autograph=False)
        self.end_tokens = end_signature(ends_of(eos_id))

    @property
    def signatures(self):
        own = {"initial_state": self.initial_state, "step": self.step}
        return {**own, "end_tokens": self.end_tokens, "serving_default": self.step}


def _cache_sizes(model):
    """Return the size of each layer's cache; refuse a model whose state would grow."""
    blocks = getattr(getattr(model, "depth", None), "blocks", None)
    if blocks is None or model.memory is not None:
        raise ValueError(
            "A stream needs a `CausalLanguageModel` without a memory. "
            f"Received: {type(model).__name__}."
        )
    if model.max_length is not None:
        raise ValueError(
            "A stream needs positions without a limit, such as `Rotary` in attention. "
            f"Received: a model of at most {model.max_length} positions."
        )
    patterns = [block.attention.pattern for block in blocks]
    for pattern in patterns:
        if pattern.kept_keys.size is None:
            raise ValueError(
                "A stream needs patterns that keep a fixed number of keys, such as "
                f"`Sinks(4, window=1020)`. Received: pattern={pattern!r}."
            )
    return [pattern.kept_keys.size for pattern in patterns]


def _state(cache):
    """Return a cache of equal layers as three tensors."""
    layers = cache["layers"]
    shapes = {tuple(x.shape[1:]) for layer in layers for x in [layer["attention"]["key"]]}
    sublayers = {name for layer in layers for name in layer}
    if len(shapes) > 1 or sublayers != {"attention"}:
        raise ValueError(
            "A stream needs layers with caches of one shape, and of attention only. "
            f"Received: shapes {sorted(shapes)}, caches of {', '.join(sorted(sublayers))}."
        )
    tensors = {
        name: tf.cast(tf.stack([layer["attention"][name] for layer in layers], axis=1), tf.float32)
        for name in ("key", "value")
    }
    return {**tensors, "index": cache["index"]}
