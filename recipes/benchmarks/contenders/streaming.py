"""One more token of a stream, after many: with first keys and a window, or with all keys."""

from ..workload import Task

SIZES = {"num_layers": 2, "num_heads": 4, "hidden_dim": 64, "intermediate_dim": 256}
VOCABULARY_SIZE = 256
PIECE = 1000  # tokens that a call reads on the way to a position


def sinks(position, count, window):
    """`export.TokenStream` with `Sinks`, which has read every token before `position`."""
    import numpy as np
    import tensorflow as tf

    from keras_attn import export, patterns

    stream = export.TokenStream(_model(patterns.Sinks(count, window)))
    ids = np.random.default_rng(0).integers(1, VOCABULARY_SIZE, (1, PIECE)).astype("int32")
    piece, token, state = tf.constant(ids), tf.constant(ids[:, :1]), stream.initial_state(1)
    for _ in range(position // PIECE):
        state = stream.step(piece, **state)
        del state["logits"]
    if int(state["index"]) != position:
        raise ValueError(f"`position` must be a multiple of {PIECE}. Received: {position}.")

    def read_one():
        nonlocal state
        state = stream.step(token, **state)
        return state.pop("logits").numpy()

    return Task(call=read_one, facts={"state_mb": _megabytes(state)})


def all_keys(position):
    """A step with a cache of every key, which is full after it."""
    import tensorflow as tf

    from keras_attn import patterns

    model = _model(patterns.Causal())
    cache = {**model.depth.initial_cache(1, position + 1), "index": tf.constant(position)}
    token, positions = tf.constant([[5]]), tf.constant([position])
    step = tf.function(lambda cache: model.step(token, {}, cache, positions), autograph=False)
    return Task(call=lambda: step(cache)[0].numpy(), facts={"state_mb": _megabytes(cache)})


def _model(pattern):
    from keras_attn import depth, layers, models

    def block(index):
        width, heads = SIZES["hidden_dim"], SIZES["num_heads"]
        return layers.TransformerBlock(
            layers.MultiHeadAttention(heads, width // heads, pattern=pattern, position="rotary"),
            layers.FeedForward(SIZES["intermediate_dim"]),
            residual="pre_norm",
        )

    stack = depth.Stack(block, SIZES["num_layers"])
    return models.CausalLanguageModel(
        layers.TokenEmbedding(VOCABULARY_SIZE, SIZES["hidden_dim"]), stack
    )


def _megabytes(state):
    import keras

    return sum(x.numpy().nbytes for x in keras.tree.flatten(state)) / 1e6
