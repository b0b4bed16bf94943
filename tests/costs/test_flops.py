"""FLOPs that `explain` predicts, against the products that TensorFlow computes."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from counted_products import counted

import keras_attn
from keras_attn import depth, feed_forward, layers, memory, patterns, scores
from keras_attn.attention.inputs import TileSizes
from keras_attn.backend import remat

T, D = 97, 14
SMALL = TileSizes(
    chunk_scores=5000, block_scores=3000, least_group=13, most_block=11, least_window=5
)


def products_of(model, length, batch):
    """Run a step eagerly: return the multiply-adds of the forward pass and of the gradients."""
    shapes = [(batch, *(length if n is None else n for n in x.shape[1:])) for x in model.inputs]
    inputs = [tf.constant(np.random.default_rng(3).normal(size=s), "float32") for s in shapes]
    if any("int" in x.dtype for x in model.inputs):
        inputs = [tf.ones(s, "int32") for s in shapes]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([variable.value for variable in model.trainable_variables])
        with counted() as forward:
            output = model(inputs if len(inputs) > 1 else inputs[0])
        total = tf.reduce_sum(keras.tree.flatten(output)[0])
    with counted() as backward:
        tape.gradient(total, [variable.value for variable in model.trainable_variables])
    return sum(forward), sum(backward)


def model_of(*make_layers, length=T, **kwargs):
    """Return a model of a layer that makes each input learn, and attention layers after it."""
    x = inputs = keras.Input((None, 3))
    x = keras.layers.Dense(D)(x)
    for make in make_layers:
        layer = make()
        x = layer(x, x) if isinstance(layer, layers.MultiHeadAttention) else layer(x)
    return keras.Model(inputs, x)


def attention(pattern="dense", **kwargs):
    def make():
        layer = layers.MultiHeadAttention(2, 5, 3, pattern=pattern, **kwargs)
        layer.tile_sizes = SMALL
        return layer

    return make


def check(model, length=T, batch=2, checks_gradients=True):
    forward, backward = products_of(model, length, batch)
    assert forward > 0
    total = keras_attn.explain(model, length, batch).total
    assert total.forward_flops == 2 * forward
    assert total.backward_flops == 2 * backward or not checks_gradients


def some(cases, *fast):
    """Return the names of the cases; all but the `fast` ones are slow tests."""
    return [n if n in fast else pytest.param(n, marks=pytest.mark.slow) for n in cases]


BLOCKWISE = {
    "Local both sides": (patterns.Local(7, causal=False), {}),
    "Strided": (patterns.Strided(7), {}),
    "Fixed": (patterns.Fixed(13, 3), {}),
    "BlockLocal2D": (patterns.BlockLocal2D((10, 11), (3, 4), (2, 1)), {}),
    "Dilated": (patterns.Dilated(5, 3), {}),
    "Global": (patterns.Global(3), {}),
    "Prefix": (patterns.Prefix(19), {}),
    "Random": (patterns.Random(8, 2, 120), {}),
    "Sinks": (patterns.Sinks(3, 17), {}),
    "Either": (patterns.Local(5) | patterns.Strided(7, "column"), {}),
    "PerHead": (patterns.PerHead([patterns.Local(5), patterns.Causal()]), {}),
    "AdaptiveSpan": (patterns.AdaptiveSpan(31, ramp=4), {}),
    "LSH wrapped": (patterns.LSH(8, 2, across_buckets=True, wrap=True), {"score": "shared_qk"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BLOCKWISE)
def test_the_plan_of_a_pattern_is_counted_tile_by_tile(name):
    pattern, more = BLOCKWISE[name]
    check(model_of(attention(pattern, implementation="blockwise", **more)))


SCORES = {
    "relative": scores.Relative,
    "learned": lambda: scores.LearnedRelative(23),
    "disentangled": lambda: scores.Disentangled(4, 12),
    "biases": lambda: scores.DotProduct() + scores.T5Bias(8, 20),
    "capped": lambda: scores.SoftCap(scores.Cosine(), 7.0),
    "kernel": scores.Kernel,
    "random features": lambda: scores.FAVOR(11),
}


# A table of distances and random features have a gradient by one of their factors only, and that
# of biases is a sum, which TensorFlow computes as a product with ones.
UNEVEN = {"relative", "random features", "biases"}


TILES = (("dense", "dense"), ("causal", "blockwise"), (patterns.Local(17), "blockwise"))


@pytest.mark.slow
@pytest.mark.parametrize("name, tiles", list(zip(SCORES, itertools.cycle(TILES))), ids=str)
def test_a_score_counts_the_products_of_a_tile(name, tiles):
    pattern, implementation = tiles
    make = attention(pattern, score=SCORES[name](), implementation=implementation)
    check(model_of(make), checks_gradients=name not in UNEVEN)


@pytest.mark.slow
def test_a_table_of_distances_has_a_gradient_by_its_kernel_only():
    # Run eagerly, an einsum has that by the sinusoids too; a graph leaves it out.
    model = model_of(attention("causal", score=scores.Relative(), implementation="dense"))
    _, backward = products_of(model, T, 2)
    num_products = 10 * 2 * 5 * (T + T)
    assert keras_attn.explain(model, T, 2).total.backward_flops == 2 * (backward - num_products)


def block(index=0, attention_layer=None, **kwargs):
    layer = attention_layer or attention("causal", implementation="blockwise")()
    return layers.TransformerBlock(layer, feed_forward.FeedForward(13), **kwargs)


WHOLE = {
    "shared key heads": attention("causal", num_key_value_heads=1),
    "gate, sinks and norms": attention("causal", use_gate=True, sinks=True, qk_norm="rms_norm"),
    "conv": lambda: feed_forward.SeparableConvTransition(13, (3, 5)),
    "chunks": lambda: feed_forward.FeedForward(13, chunks=4),
    "experts beside a layer": lambda: feed_forward.MixtureOfExperts(
        feed_forward.FeedForward(13), 5, 2, shared=keras.layers.Dense(D)
    ),
    "differential": lambda: layers.DifferentialAttention(2, 5, 1),
    "second projections": lambda: layers.GlobalAttention(
        2, 5, 3, num_global=4, pattern=patterns.Local(3, causal=False) | patterns.Global(4)
    ),
    "gated residual": lambda: depth.Stack(lambda index: block(index, residual="gate"), 2),
    "remat": lambda: depth.Stack(block, 3, remat=True),
    "reversible": lambda: depth.Reversible(lambda index: block(residual="pre_norm"), 3),
    "recurrent": lambda: depth.Recurrent(block(), 3),
}


@pytest.mark.parametrize("name", some(WHOLE, "shared key heads"))
def test_layers_and_depths_are_counted_exactly(name):
    check(model_of(attention(), WHOLE[name]))


@pytest.mark.slow
def test_a_long_chain_is_recomputed_twice(monkeypatch):
    monkeypatch.setattr(remat, "MAX_UNSEGMENTED", 4)
    check(model_of(lambda: depth.Stack(block, 5, remat=True), length=11), length=11)


def test_kernels_that_do_not_learn_need_no_gradient():
    frozen = feed_forward.FeedForward(13)
    model = model_of(attention(), lambda: frozen)
    frozen.trainable = False
    check(model)


@pytest.mark.slow
def test_what_comes_before_all_that_learns_needs_no_gradient():
    model = model_of(attention(), lambda: depth.Stack(block, 2), lambda: keras.layers.Dense(3))
    *before, _ = [layer for layer in model.layers if layer.weights]
    for layer in before:
        layer.trainable = False
    check(model)
    costs = keras_attn.explain(model, T).layers
    assert [cost.activation_bytes > 0 for cost in costs] == [False] * (len(costs) - 1) + [True]


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        attention(),
        lambda: feed_forward.GatedFeedForward(13),
        lambda: feed_forward.SeparableConvTransition(13, (3, 5)),
        lambda: feed_forward.MixtureOfExperts(feed_forward.FeedForward(13), 5, 2),
        lambda: depth.Recurrent(block(), 3),
    ],
)
def test_an_input_of_floats_needs_no_gradient(make):
    x, layer = keras.Input((None, D)), make()
    first = layer(x, x) if isinstance(layer, layers.MultiHeadAttention) else layer(x)
    first = keras.ops.multiply(first, 2.0)  # no layer's output
    check(keras.Model(x, attention()()(first, first)))


@pytest.mark.slow
@pytest.mark.parametrize("learns", ["query", "value"])
def test_queries_and_keys_of_one_kernel_learn_from_what_they_are_made_of(learns):
    inputs = keras.Input((T, D)), keras.Input((T + 6, D))
    query, value = inputs
    if learns == "query":
        query = keras.layers.Dense(D)(query)
    else:
        value = keras.layers.Dense(D)(value)
    shared = layers.MultiHeadAttention(2, 5, 3, score="shared_qk", implementation="dense")
    check(keras.Model(inputs, shared(query, value)))


@pytest.mark.slow
def test_each_step_of_a_loop_needs_a_gradient_by_its_state():
    x = keras.Input((None, D))
    recurrent, halting = (
        keras_attn.explain(keras.Model(x, make(block(), 3)(x)), T).total.backward_flops
        for make in (depth.Recurrent, depth.ACT)
    )
    # Of three steps that of a halting unit of one output, by its kernel and its input; of the first
    # step, which the loop stands for, that of the queries, keys and values by an input.
    assert halting - recurrent == 2 * T * D * (3 * 2 + 2 * (5 + 5 + 3))


@pytest.mark.slow
def test_a_recomputed_block_runs_its_frozen_layers_again():
    costs = []
    for is_recomputed in (False, True):
        stack = depth.Stack(block, 2, remat=is_recomputed)
        model = model_of(lambda stack=stack: stack)
        model.layers[1].trainable = stack.blocks[0].attention.trainable = False
        costs.append(keras_attn.explain(model, T).total)
        stack.trainable = False
        assert keras_attn.explain(model, T).total.backward_flops == 0
    plain, recomputed = costs
    stack_flops = plain.forward_flops - 2 * T * 3 * D
    assert recomputed.backward_flops - plain.backward_flops == stack_flops


@pytest.mark.slow
def test_a_low_rank_update_is_one_more_product():
    model = model_of(attention())
    before = keras_attn.explain(model, T).total
    layers.add_lora(model, 3)
    after = keras_attn.explain(model, T).total
    update = D * 3 * 10 + D * 3 * 6  # of queries, 2 heads of 5, and of values, 2 of 3
    assert after.forward_flops - before.forward_flops == 2 * update


def test_layers_with_products_of_their_own_count_them():
    random = np.random.default_rng(0)
    compression = memory.CompressiveMemory(4, 6, rate=3)
    state, hidden = compression.initial(2, 3, D), random.normal(size=(2, 3, 8, D))
    trajectory = layers.TrajectoryEmbedding(5, D, max_steps=9)
    inputs = [random.normal(size=shape).astype("float32") for shape in ((2, 7), (2, 7, 3))]
    inputs.append(random.normal(size=(2, 7, 5)).astype("float32"))
    for layer, run, shapes in (
        (
            compression,
            lambda: compression.extend(state, hidden.astype("float32")),
            {"memory": state["memory"].shape, "hidden": hidden.shape},
        ),
        (
            trajectory,
            lambda: trajectory(*inputs),
            dict(zip(("returns", "states", "actions"), [x.shape for x in inputs], strict=True)),
        ),
    ):
        run()  # builds
        with counted() as products:
            run()
        assert sum(products) == layer.call_products((), **shapes) > 0


@pytest.mark.slow
def test_the_search_of_a_memory_is_counted():
    def forward(memory_length):
        attention = layers.KNNAttention(2, 5, top_k=3, pattern="causal")
        block = layers.TransformerBlock(attention, layers.FeedForward(13))
        model = keras_attn.models.CausalLanguageModel(
            layers.TokenEmbedding(11, D),
            depth.Stack([block]),
            memory=memory.KNNMemory(memory_length),
        )
        return keras_attn.explain(model, T).total.forward_flops

    assert forward(29) - forward(17) == 2 * 2 * T * (29 - 17) * 5


@pytest.mark.slow
def test_a_table_of_steps_is_no_loop():
    def training(max_steps):
        sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 14, "intermediate_dim": 22}
        model = keras_attn.models.decision_transformer(3, 2, max_steps=max_steps, **sizes)
        return keras_attn.explain(model, T).memory.training

    # Its weights, their gradients and two moments, and no activations beside.
    assert training(1100) - training(100) == pytest.approx(4 * 4 * 1000 * 14, rel=0.1)


@pytest.mark.slow
def test_a_layer_of_losses_is_counted_as_one_of_logits():
    embedding = layers.AdaptiveEmbedding(31, D, cutoffs=[7], div_val=2)
    softmax, x = layers.AdaptiveSoftmax(embedding), keras.Input((None, D))
    attend = layers.MultiHeadAttention(2, 5)
    labels = keras.Input((None,), dtype="int32")
    embedding(labels)
    logits, losses = (
        keras_attn.explain(keras.Model(inputs, softmax(attend(x, x), *inputs[1:])), T).total
        for inputs in ([x], [x, labels])
    )
    assert logits.forward_flops == losses.forward_flops > 0


def test_attention_to_another_sequence_is_counted_by_both_lengths():
    short, long = keras.Input((7, 3)), keras.Input((None, 3))
    query, value = keras.layers.Dense(D)(short), keras.layers.Dense(D)(long)
    check(keras.Model([short, long], attention()()(query, value)))


@pytest.mark.slow
def test_a_mask_that_is_an_input_does_not_make_queries_inputs():
    x, mask = keras.Input((T, 3)), keras.Input((T, T), dtype="bool")
    h = keras.layers.Dense(D)(x)
    masked = keras.Model([x, mask], attention()()(h, h, attention_mask=mask))
    plain = keras.Model(x, attention()()(h, h))
    backward = keras_attn.explain(masked, T).total.backward_flops
    assert backward == keras_attn.explain(plain, T).total.backward_flops
    assert backward == 2 * products_of(plain, T, 1)[1]


MODELS = {
    "transformer": lambda **sizes: keras_attn.models.transformer(31, **sizes),
    "gpt": lambda **sizes: keras_attn.models.gpt(31, **sizes),
    "bert": lambda **sizes: keras_attn.models.bert(31, **sizes),
    "transformer_xl": lambda **sizes: keras_attn.models.transformer_xl(
        31, memory_length=11, **sizes
    ),
}


@pytest.mark.parametrize("name", some(MODELS, "gpt"))
def test_a_whole_model_is_counted(name):
    sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": 14, "intermediate_dim": 22}
    model = MODELS[name](**sizes, dropout=0.0)
    shapes = {
        k: (3, *(17 if n is None else n for n in x.shape[1:])) for k, x in model.input.items()
    }
    shapes = {k: s for k, s in shapes.items() if k not in ("memory", "memory_length")}
    inputs = {k: tf.ones(s, "int32") for k, s in shapes.items() if not model.get_layer(k).optional}
    if model.memory is not None:
        inputs |= model.initial_memory(3)
    with counted() as forward:
        model(inputs)
    assert keras_attn.explain(model, 17, 3).total.forward_flops == 2 * sum(forward) > 0
