"""LoRA: adapters of projections, which alone train, and which join the kernels."""

import keras
import numpy as np
import oracles
import pytest
from keras import ops

from keras_attn import depth, export, generation, layers, models, patterns, residuals
from keras_attn.layers import (
    FeedForward,
    GatedFeedForward,
    MixtureOfExperts,
    MultiHeadAttention,
    TransformerBlock,
)

B, T, S, D, N, H, F, R = 2, 5, 3, 11, 2, 7, 13, 3
X, CONTEXT = oracles.random(B, T, D), oracles.random(B, S, D)
IDS = np.random.default_rng(0).integers(1, 17, (B, T + 1))


def block(**attention):
    return TransformerBlock(
        MultiHeadAttention(N, H, num_key_value_heads=1, use_gate=True, **attention),
        GatedFeedForward(F, use_bias=True),
        cross_attention=MultiHeadAttention(N, H, value_dim=3),
        residual=residuals.PreNorm(),
    )


def model_of(layer):
    x, context = keras.Input((None, D)), keras.Input((None, D))
    has_context = getattr(layer, "cross_attention", None) is not None
    inputs = [x, context] if has_context else [x]
    model = keras.Model(inputs, layer(*inputs))
    oracles.scramble(model)
    return model


def gpt(**arguments):
    sizes = {"num_layers": 1, "num_heads": N, "hidden_dim": 6, "intermediate_dim": F}
    model = models.gpt(17, **sizes, dropout=0.0, max_length=T + 9, **arguments)
    oracles.scramble(model)
    return model


def scramble_adapters(model, seed=1):
    """Random A and B, and for each path the scale."""
    generator = np.random.default_rng(seed)
    for weight in model.trainable_variables:
        weight.assign(generator.normal(0, 0.3, weight.shape))


def output(model, *inputs):
    return np.asarray(model(list(inputs) if len(inputs) > 1 else inputs[0]))


NAMES = [
    *("attention/query", "attention/key", "attention/gate", "attention/value", "attention/output"),
    *("cross_attention/query", "cross_attention/key"),
    *("cross_attention/value", "cross_attention/output"),
    *("feed_forward/gate", "feed_forward/intermediate", "feed_forward/output"),
]


def weight_of(layer, name):
    """The kernel that a projection names."""
    part, name = name.split("/")
    part = getattr(layer, part)
    if part is not layer.feed_forward:
        return getattr(part, f"{name}_kernel")
    return next(w for w in part.weights if w.path.endswith(f"/{name}/kernel"))


def test_merged_kernels_are_sums_and_give_the_same_outputs():
    """The oracle sums over the rank, in loops over each kernel as a matrix.

    A layer that the user had frozen stays so.
    """
    layer = block()
    layer.feed_forward.trainable = False
    model = model_of(layer)
    trainable = [weight.path for weight in model.trainable_variables]
    paths = layers.add_lora(model, R, targets=["*"], alpha=5)
    assert sorted(paths) == sorted(f"{layer.name}/{name}" for name in NAMES)
    scramble_adapters(model)
    parts = {w.path: np.asarray(w, "float64") for w in model.trainable_variables}
    expected = {}
    for name in NAMES:
        kernel = weight_of(layer, name)
        start = kernel.path.removesuffix("kernel") + "lora_"
        a, b = (parts[f"{start}{'kernel_' * start.endswith('/lora_')}{x}"] for x in "ab")
        rows, columns = a.size // R, b.size // R
        a, b = a.reshape(rows, R), b.reshape(R, columns)
        total = np.asarray(kernel, "float64").reshape(rows, columns)
        for i, j in np.ndindex(rows, columns):
            total[i, j] += 5 / R * sum(a[i, r] * b[r, j] for r in range(R))
        expected[name] = total.reshape(kernel.shape)
    before = output(model, X, CONTEXT)
    assert layers.merge_lora(model) == paths
    with pytest.raises(ValueError, match="must have adapters"):
        layers.merge_lora(model)
    for name in NAMES:
        np.testing.assert_allclose(weight_of(layer, name), expected[name], atol=1e-6)
    np.testing.assert_allclose(output(model, X, CONTEXT), before, atol=1e-6 * before.max())
    assert [weight.path for weight in model.trainable_variables] == trainable
    assert not any("lora" in weight.name for weight in model.weights)
    layers.add_lora(model, R, targets=["query"])  # again


@pytest.mark.slow
def test_functions_are_compiled_again():
    model = keras.Sequential([keras.Input((D,)), keras.layers.Dense(F, name="dense")])
    model.predict(X[0], verbose=0)
    assert layers.add_lora(model, R, targets=["dense"]) == ["dense"]
    scramble_adapters(model)
    expected = output(model, X[0])
    for _ in range(2):
        np.testing.assert_allclose(model.predict(X[0], verbose=0), expected, atol=1e-5)
        if len(model.weights) > 2:
            layers.merge_lora(model)
    assert len(model.weights) == 2


@pytest.mark.slow
def test_outputs_are_equal_at_first_and_adapters_alone_train():
    model = model_of(block())
    before, count = output(model, X, CONTEXT), len(model.weights)
    paths = layers.add_lora(model, R, targets=["attention/*", "feed_forward/*", "query"])
    assert len(paths) == 9  # of cross-attention the queries alone
    np.testing.assert_array_equal(output(model, X, CONTEXT), before)
    names = [weight.name for weight in model.trainable_variables]
    assert len(names) == 2 * 9 and all("lora" in name for name in names)
    assert len(model.weights) == count + 2 * 9


def test_targets_are_ends_of_paths_and_patterns():
    model = gpt()
    assert layers.add_lora(model, 1, targets="feed_forward/output") == [
        "depth/blocks/0/feed_forward/output"
    ]
    assert len(layers.add_lora(model, 2, targets=["depth/blocks/0/*/[qk]*"])) == 2
    assert len(model.trainable_variables) == 2 * 3


def test_each_expert_has_an_adapter_of_its_own(tmp_path):
    """The oracle is a model whose kernels have been changed by a loop over experts and the rank."""
    count = 5

    def make():
        experts = MixtureOfExperts(GatedFeedForward(F), count, shared=FeedForward(F))
        block = TransformerBlock(MultiHeadAttention(N, H), experts, name="block")
        return experts, model_of(block)

    (experts, model), (others, merged) = make(), make()
    before = output(model, X)
    names = {"gate": (D, F), "output": (F, D)}
    paths = layers.add_lora(model, R, targets=[f"feed_forward/{x}" for x in names], alpha=5)
    assert [path.split("/")[-2:] for path in paths] == [["feed_forward", name] for name in names]
    np.testing.assert_array_equal(output(model, X), before)
    for name, (rows, columns) in names.items():
        a, b = (part.numpy() for part in experts.update_weights(name))
        assert a.shape == (count, rows, R) and b.shape == (count, R, columns)
        bounds = np.abs(a).max(axis=(1, 2))
        assert len(set(bounds)) == count and bounds.max() <= (6 / rows) ** 0.5 < 1.5 * bounds.min()
    scramble_adapters(model)
    for name, (rows, columns) in names.items():
        a, b = (part.numpy().astype("float64") for part in experts.update_weights(name))
        kernel = getattr(others, f"{name}_kernel")
        total = kernel.numpy().astype("float64")
        for e, i, j in np.ndindex(count, rows, columns):
            total[e, i, j] += 5 / R * sum(a[e, i, r] * b[e, r, j] for r in range(R))
        kernel.assign(total)
    expected = output(merged, X)
    assert np.abs(expected - before).max() > 0.1
    np.testing.assert_allclose(output(model, X), expected, atol=1e-5)
    _, again = make()
    assert layers.load_lora(again, layers.save_lora(model, tmp_path / "task.npz")) == paths
    np.testing.assert_array_equal(output(again, X), output(model, X))
    again.save_weights(tmp_path / "sums.weights.h5")
    assert layers.merge_lora(model) == paths
    for other in (model, make()[1]):
        other.load_weights(tmp_path / "sums.weights.h5")
        np.testing.assert_allclose(output(other, X), expected, atol=1e-5)


@pytest.mark.slow
def test_shared_queries_and_keys_have_one_adapter():
    layer = MultiHeadAttention(N, H, score="shared_qk", pattern=patterns.Local(2))
    model = model_of(layer_of_self_attention(layer))
    layers.add_lora(model, R, targets=["attention/query"])
    scramble_adapters(model)
    merged = np.asarray(layer.kernel_of("key"))
    np.testing.assert_array_equal(merged, layer.kernel_of("query"))
    assert np.abs(merged - layer.query_kernel).max() > 0.1
    with pytest.raises(ValueError, match="attention/query, attention/value.*targets='key'"):
        layers.add_lora(model, R, targets=["key"])


def layer_of_self_attention(attention):
    return TransformerBlock(attention, FeedForward(F, chunks=2))


@pytest.fixture(scope="module")
def adapted():
    """A model with adapters, and one without."""
    model = gpt()
    layers.add_lora(model, R, targets=["query", "value", "feed_forward/output"], alpha=R)
    scramble_adapters(model)
    return model, gpt()


@pytest.mark.slow
def test_generation_reads_the_adapters():
    """Its function was compiled before there were adapters."""
    model, prompt = gpt(), IDS[:, :3]
    first, _ = generation.generate(model, prompt, max_length=4)
    layers.add_lora(model, R, targets=["attention/*"])
    scramble_adapters(model)
    ids = np.asarray(generation.generate(model, prompt, max_length=4)[0])
    assert not np.array_equal(ids, first)
    text = np.array(prompt)
    for _ in range(4):  # without a cache
        text = np.append(text, output(model, text)[:, -1:, 1:].argmax(-1) + 1, axis=1)
    for row, whole in zip(ids, text[:, 3:], strict=True):
        length = np.argmax(row == 3) + 1 if 3 in row else len(row)
        np.testing.assert_array_equal(row[:length], whole[:length])
    layers.merge_lora(model)
    np.testing.assert_array_equal(generation.generate(model, prompt, max_length=4)[0], ids)


def test_a_file_of_adapters_makes_the_same_model_of_the_same_weights(adapted, tmp_path):
    model, base = adapted
    path = layers.save_lora(model, tmp_path / "task.npz")
    assert path.stat().st_size < 8_000
    again = gpt()
    assert len(layers.load_lora(again, path)) == 3
    np.testing.assert_array_equal(output(again, IDS), output(model, IDS))
    assert len(again.trainable_variables) == 6
    scramble_adapters(again)
    layers.load_lora(again, path)  # into adapters of the same sizes
    np.testing.assert_array_equal(output(again, IDS), output(model, IDS))
    kernel = again.depth.blocks[0].attention.value_kernel
    kernel.assign(kernel + 0.1)
    with pytest.raises(ValueError, match="same weights.*other weights at 'depth/blocks/0/att"):
        layers.load_lora(again, path)
    with pytest.raises(ValueError, match="projections of the model.*adapter of 'depth/blocks/0"):
        layers.load_lora(model_of(layer_of_self_attention(MultiHeadAttention(N, H))), path)


@pytest.mark.slow
def test_a_file_of_a_model_with_adapters_holds_their_sums(adapted, tmp_path):
    model = adapted[0]
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(output(loaded, IDS), output(model, IDS), atol=1e-6)
    assert not any("lora" in weight.name for weight in loaded.weights)
    model.save_weights(tmp_path / "model.weights.h5")
    again = gpt()
    layers.add_lora(again, R, targets=["key", "value"])
    scramble_adapters(again)
    again.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_allclose(output(again, IDS), output(model, IDS), atol=1e-6)


def test_exports_need_merged_adapters(adapted, tmp_path):
    for write in (export.saved_model, export.onnx, export.ctranslate2):
        with pytest.raises(ValueError, match="merge_lora.*3 adapters, as at 'depth/blocks/0/att"):
            write(adapted[0], str(tmp_path / "export"))


def plain_block(index=0):
    return TransformerBlock(
        MultiHeadAttention(N, H), FeedForward(F, chunks=2), residual=residuals.PreNorm()
    )


@pytest.mark.slow
def test_a_reversible_stack_gives_adapters_the_gradient_of_the_same_function():
    """Differences of the loss along a random direction are the oracle."""
    import tensorflow as tf

    x = keras.Input((None, D))
    model = keras.Model(x, depth.Reversible(plain_block, 2)(x))
    oracles.scramble(model)
    layers.add_lora(model, R, targets=["query", "output"])
    scramble_adapters(model)

    def loss():
        return ops.sum(ops.sin(model(X, training=True)))

    weights = model.trainable_variables
    with tf.GradientTape() as tape:
        value = loss()
    gradients = tape.gradient(value, weights)
    ways = [oracles.random(*weight.shape, seed=9) for weight in weights]
    slope = sum(float(ops.sum(g * way)) for g, way in zip(gradients, ways, strict=True))
    sides = []
    for step in (1e-2, -2e-2):
        for weight, way in zip(weights, ways, strict=True):
            weight.assign_add(step * way)
        sides.append(float(loss()))
    assert slope == pytest.approx((sides[0] - sides[1]) / 2e-2, rel=2e-2, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float64"])
def test_adapters_are_float32_at_least(policy):
    layer = MultiHeadAttention(N, H, dtype=policy)
    x = keras.Input((None, D))
    model = keras.Model(x, TransformerBlock(layer, FeedForward(F, dtype=policy), dtype=policy)(x))
    before = np.asarray(ops.cast(model(X), "float64"))
    layers.add_lora(model, R, targets=["attention/*"])
    dtypes = {weight.dtype for weight in model.trainable_variables}
    assert dtypes == {"float64" if policy == "float64" else "float32"}
    np.testing.assert_array_equal(np.asarray(ops.cast(model(X), "float64")), before)
    scramble_adapters(model)
    expected = np.asarray(ops.cast(model(X), "float64"))
    assert np.abs(expected - before).max() > 0.1
    layers.merge_lora(model)
    tolerance = {"mixed_bfloat16": 0.1, "float64": 1e-12}[policy]
    merged = np.asarray(ops.cast(model(X), "float64"))
    np.testing.assert_allclose(merged, expected, atol=tolerance)


def test_bad_calls_are_refused(tmp_path):
    model, constrained = gpt(), MultiHeadAttention(N, H, kernel_constraint="non_neg")
    with pytest.raises(ValueError, match="`rank` must be an integer of at least 1.*rank=0"):
        layers.add_lora(model, 0)
    with pytest.raises(ValueError, match="`alpha` must be a number above 0.*alpha=-1"):
        layers.add_lora(model, 2, alpha=-1)
    with pytest.raises(ValueError, match="feed_forward/output.*targets='queries'"):
        layers.add_lora(model, 2, targets=["value", "queries"])
    with pytest.raises(ValueError, match="`targets` must be names of projections"):
        layers.add_lora(model, 2, targets=[])
    with pytest.raises(ValueError, match="`model` must be a built"):
        layers.add_lora(keras.Sequential([keras.layers.Dense(2)]), 2)
    for function in (layers.merge_lora, lambda model: layers.save_lora(model, "task.npz")):
        with pytest.raises(ValueError, match="`model` must have adapters: add them by"):
            function(model)
    with pytest.raises(ValueError, match="`kernel_constraint`.*NonNeg.*attention/query"):
        layers.add_lora(model_of(layer_of_self_attention(constrained)), 2)
    assert all(weight.trainable for weight in model.weights)  # nothing has changed
    layers.add_lora(model, 2)
    with pytest.raises(ValueError, match="one adapter: call `merge_lora`.*blocks/0/attention/qu"):
        layers.add_lora(model, 2, targets=["query", "key"])
    assert len(model.trainable_variables) == 2 * 2


@pytest.mark.slow
def test_bad_files_are_refused(tmp_path):
    model = gpt()
    layers.add_lora(model, 2)
    path = layers.save_lora(model, tmp_path / "task.npz")
    with pytest.raises(ValueError, match=r'ends with "\.npz".*task\.bin'):
        layers.save_lora(model, tmp_path / "task.bin")
    cut, other = tmp_path / "cut.npz", tmp_path / "other.npz"
    cut.write_bytes(path.read_bytes()[:-100])
    np.savez(other, x=np.ones(3))
    for file in (cut, other):
        with pytest.raises(ValueError, match=r"`layers.save_lora` wrote, in full.*npz"):
            layers.load_lora(model, file)
    for rank, targets in ((3, ("query", "value")), (2, ("query", "key"))):
        another = gpt()
        layers.add_lora(another, rank, targets)
        with pytest.raises(ValueError, match="no adapters but those.*Received: adapters at depth"):
            layers.load_lora(another, path)
