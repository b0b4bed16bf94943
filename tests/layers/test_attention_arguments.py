"""MultiHeadAttention's errors, its configuration and its dtype policies."""

import inspect

import keras
import numpy as np
import oracles
import pytest
from keras import ops
from marks import slow

from keras_attn import norms, patterns, scores
from keras_attn.layers import MultiHeadAttention
from keras_attn.memory import KVCache

X, Y = np.ones((2, 3, 8), "float32"), np.ones((2, 5, 8), "float32")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_heads": 0}, r"`num_heads`.*num_heads=0"),
        ({"num_heads": 2.5}, r"`num_heads`.*integer.*num_heads=2.5"),
        ({"key_dim": 0}, r"`key_dim`.*key_dim=0"),
        ({"value_dim": 0}, r"`value_dim`.*value_dim=0"),
        ({"output_shape": 0}, r"`output_shape`.*output_shape=0"),
        ({"output_shape": (3, 0)}, r"`output_shape`.*output_shape=0"),
        ({"num_key_value_heads": 0}, r"`num_key_value_heads`.*num_key_value_heads=0"),
        ({"num_key_value_heads": 4}, r"multiple.*num_heads=6, num_key_value_heads=4"),
        ({"dropout": 1.0}, r"`dropout`.*dropout=1.0"),
        ({"score": "cosine"}, r"score='cosine'.*additive, dot, relative, scaled_dot, shared_qk"),
        ({"pattern": "sparse"}, r"pattern='sparse'.*causal, dense"),
        ({"pattern": patterns.Causal}, r"`pattern` must be an object.*Causal"),
        ({"pattern": None}, r"`pattern`.*pattern=None"),
        ({"pattern": scores.DotProduct()}, r"`pattern`.*DotProduct"),
        ({"score": patterns.Causal()}, r"`score`.*Causal\(\)"),
    ],
)
def test_errors_of_the_constructor(arguments, message):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(**{"num_heads": 6, "key_dim": 4, **arguments})


def cache(slots=4, batch=2, key_dim=4):
    return KVCache(slots).initial(MultiHeadAttention(2, key_dim), batch)


@pytest.mark.parametrize(
    "inputs, arguments, message",
    [
        ((X, None), {}, r"`value`.*value=None, no cache"),
        ((X, None), {"cache": cache}, r"`value`.*value=None, a cache to be extended"),
        ((X[0], Y), {}, r"`query`.*\(3, 8\)"),
        ((X[..., :7], Y), {}, r"`query`.*8.*\(2, 3, 7\)"),
        ((X, Y[..., :7]), {}, r"`value`.*8.*\(2, 5, 7\)"),
        ((X, Y[:1]), {}, r"`value`.*\(1, 5, 8\)"),
        ((X, Y, X), {}, r"`key`.*\(2, 5, 8\).*\(2, 3, 8\)"),
        ((X, Y), {"query_positions": np.arange(4)}, r"`query_positions`.*\(3,\).*\(4,\)"),
        ((X, Y), {"key_positions": [[0, 1, 2]]}, r"`key_positions`.*\(5,\).*\(1, 3\)"),
        ((X, X), {"cache": {"key": X}}, r"`cache\['key'\]`.*\(2, 3, 8\)"),
        ((X, X), {"cache": {}}, r"`cache` must come from.*\[\]"),
        (
            (X, X),
            {"cache": lambda: cache(slots=2)},
            r"`cache`.*2 slots, 0 keys in them, 3 new keys",
        ),
        ((X, X), {"cache": lambda: cache(batch=3)}, r"`cache\['key'\]`.*\(3, 2, 4, 4\)"),
        ((X, X), {"cache": lambda: cache(key_dim=5)}, r"`cache\['key'\]`.*\(2, 2, 4, 5\)"),
    ],
)
def test_errors_of_a_call(inputs, arguments, message):
    layer = MultiHeadAttention(2, 4)
    layer.build(X.shape)
    arguments = {name: make() if callable(make) else make for name, make in arguments.items()}
    with pytest.raises(ValueError, match=message):
        layer(*inputs, **arguments)


def test_lists_are_as_good_as_arrays():
    layer = MultiHeadAttention(2, 4, pattern="causal")
    pairs = [[True, True, False, True, True]] * 3
    np.testing.assert_array_equal(
        layer(X, Y, attention_mask=pairs, query_positions=[1, 2, 3]),
        layer(X, Y, attention_mask=np.array(pairs), query_positions=np.arange(1, 4)),
    )


ARGUMENTS = {
    "num_heads": 6,
    "key_dim": 4,
    "value_dim": 5,
    "score": scores.Additive(units=7),
    "pattern": "causal",
    "qk_norm": norms.RMSNorm(1e-5),
    "qk_norm_axis": "heads",
    "sinks": True,
    "use_gate": True,
    "num_key_value_heads": 3,
    "use_bias": False,
    "dropout": 0.25,
    "output_shape": 9,
    "kernel_initializer": "he_normal",
    "bias_initializer": "ones",
    "output_initializer": keras.initializers.RandomNormal(stddev=0.5),
    "kernel_regularizer": "l2",
    "bias_regularizer": keras.regularizers.L1(0.5),
    "kernel_constraint": "max_norm",
    "bias_constraint": "non_neg",
    "implementation": "dense",
    "seed": 3,
    "name": "look",
    "dtype": "mixed_bfloat16",
}


def test_save_config():
    layer = MultiHeadAttention(**ARGUMENTS)
    config = layer.get_config()
    assert MultiHeadAttention.from_config(config).get_config() == config
    x = ops.ones((2, 3, 8))
    layer(x, x)
    # The configuration says how to make the layer from a file, too.
    restored = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    restored.set_weights(layer.get_weights())
    np.testing.assert_array_equal(restored(x, x, training=False), layer(x, x, training=False))


def test_every_constructor_argument_is_in_the_config():
    config = MultiHeadAttention(**ARGUMENTS).get_config()
    assert set(ARGUMENTS) <= set(config)
    plain = {k: v for k, v in ARGUMENTS.items() if isinstance(v, (int, float, bool))}
    assert {k: config[k] for k in plain} == plain


def test_regularizers_and_constraints_are_those_of_keras():
    arguments = {"kernel_regularizer": "l2", "bias_regularizer": "l1", "bias_constraint": "non_neg"}
    ours = MultiHeadAttention(2, 4, kernel_constraint="unit_norm", **arguments)
    theirs = keras.layers.MultiHeadAttention(2, 4, kernel_constraint="unit_norm", **arguments)
    for layer in (ours, theirs):
        layer(X, Y)
        layer.set_weights([oracles.random(*weight.shape) for weight in layer.weights])
    assert len(ours.losses) == 8
    np.testing.assert_allclose(sum(ours.losses), sum(theirs.losses), rtol=1e-6)
    for our, their in zip(ours.weights, theirs.weights, strict=True):
        np.testing.assert_array_equal(our.constraint(our), their.constraint(their))


# Units in the last place: 8 bits of mantissa in bfloat16, 11 in float16.
TOLERANCE = {"mixed_bfloat16": 2.0**-6, "float16": 2.0**-9}


@pytest.mark.parametrize("policy, score", [("mixed_bfloat16", "additive"), slow("float16", "dot")])
def test_dtype_policies(policy, score):
    x, y = oracles.random(2, 7, 12), oracles.random(2, 5, 12)
    mask = np.arange(5)[None] < np.array([[5], [3]])
    reference = MultiHeadAttention(3, 4, score=score, pattern="causal")
    layer = MultiHeadAttention(3, 4, score=score, pattern="causal", dtype=policy)
    for built in (reference, layer):
        built.build(x.shape, y.shape)
        oracles.scramble(built)
    expected, expected_scores = reference(x, y, value_mask=mask, return_attention_scores=True)
    output, weights = layer(x, y, value_mask=mask, return_attention_scores=True)
    compute = keras.dtype_policies.get(policy).compute_dtype
    assert keras.backend.standardize_dtype(output.dtype) == compute
    assert keras.backend.standardize_dtype(weights.dtype) == "float32"
    scale = np.abs(expected).max()
    error = np.abs(oracles.numpy_of(output) - expected).max() / scale
    assert error < TOLERANCE[policy]
    assert error > 0  # it did compute in the lower precision
    np.testing.assert_allclose(weights, expected_scores, atol=2 * TOLERANCE[policy])
    # The softmax is in float32: its rows sum to 1 far beyond the precision of the policy.
    real = np.broadcast_to(np.asarray(expected_scores).sum(-1) > 0.5, weights.shape[:-1])
    np.testing.assert_allclose(np.asarray(weights).sum(-1)[real], 1, atol=1e-6)


def test_the_global_policy_reaches_the_score():
    keras.config.set_dtype_policy("mixed_bfloat16")
    layer = MultiHeadAttention(2, 4, score="additive")
    assert layer.score.compute_dtype == "bfloat16"
    assert MultiHeadAttention(2, 4, score="additive", dtype="float32").score.dtype == "float32"


def test_symbolic_shapes():
    query, value = keras.Input((None, 8)), keras.Input((5, 6))
    layer = MultiHeadAttention(2, 4, output_shape=9)
    output, weights = layer(query, value, return_attention_scores=True)
    assert output.shape == (None, None, 9)
    assert weights.shape == (None, 2, None, 5) and weights.dtype == "float32"
    model = keras.Model([query, value], [output, weights])
    for batch, length in ((1, 2), (3, 4)):
        outputs = model([np.ones((batch, length, 8)), np.ones((batch, 5, 6))])
        assert [tuple(x.shape) for x in outputs] == [(batch, length, 9), (batch, 2, length, 5)]


@pytest.mark.parametrize("output_shape", [(3, 5), slow((9,)), slow([3, 5])])
def test_the_output_may_have_several_axes(output_shape):
    x = keras.Input((None, 8))
    model = keras.Model(x, MultiHeadAttention(2, 4, output_shape=output_shape)(x, x))
    assert model.output.shape == (None, None, *output_shape)
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    rows = oracles.random(3, 7, 8)
    output = copy(rows)
    assert output.shape == (3, 7, *output_shape)
    np.testing.assert_array_equal(output, model(rows))
    # A single position with a cache.
    layer = model.layers[-1]
    cache = layer.context_cache(rows)
    step, _ = layer(rows[:, 0], None, cache=cache)
    np.testing.assert_allclose(step, output[:, 0], atol=1e-5)


def test_any_initializer_of_keras_will_do():
    """One of a constant that its configuration forgets, and a plain function."""

    def thirds(shape, dtype=None):
        return ops.full(shape, 1 / 3, dtype)

    layer = MultiHeadAttention(
        2,
        4,
        kernel_initializer=keras.initializers.Identity(gain=5.0),
        output_initializer=thirds,
        bias_initializer=thirds,
    )
    layer.build((None, None, 8))
    np.testing.assert_array_equal(np.reshape(layer.key_kernel, (8, 8)), 5 * np.eye(8))
    assert np.all(layer.output_kernel.numpy() == np.float32(1 / 3))
    assert np.all(layer.value_bias.numpy() == np.float32(1 / 3))


def test_the_signature_has_keras_arguments():
    theirs = set(inspect.signature(keras.layers.MultiHeadAttention).parameters)
    # A window is a pattern; JAX chooses kernels by itself; the others change what the layer is.
    other = {"attention_axes", "sliding_window", "flash_attention"}
    ours = inspect.signature(MultiHeadAttention).parameters
    assert theirs - other - {"activity_regularizer"} <= set(ours)
    assert list(ours)[:3] == ["num_heads", "key_dim", "value_dim"]
    assert "num_heads" not in inspect.signature(MultiHeadAttention(2, 4)).parameters


def test_repr_shows_the_arguments_that_differ_from_their_defaults():
    layer = MultiHeadAttention(8, 64, pattern=patterns.Local(256))
    assert repr(layer) == "MultiHeadAttention(8, 64, pattern=Local(256))"
    layer = MultiHeadAttention(8, 64, 32, score="relative", num_key_value_heads=2, use_bias=False)
    assert repr(layer) == (
        "MultiHeadAttention(8, 64, value_dim=32, score=Relative(), num_key_value_heads=2, "
        "use_bias=False)"
    )
    both = patterns.Local(3, causal=False) & patterns.Causal()
    assert repr(both) == "Both(Local(3, causal=False), Causal())"


def test_a_float64_policy_computes_in_float64():
    x = oracles.random(2, 5, 8).astype("float64")
    layer = MultiHeadAttention(2, 4, score="relative", position="rotary", dtype="float64")
    output, weights = layer(x, x, return_attention_scores=True)
    dtypes = {keras.backend.standardize_dtype(y.dtype) for y in (output, weights)}
    assert dtypes == {"float64"}
    np.testing.assert_allclose(np.sum(weights, axis=-1), 1, rtol=1e-15)
    spec, spec_weights = layer(
        keras.Input((5, 8), dtype="float64"),
        *[keras.Input((5, 8), dtype="float64")],
        return_attention_scores=True,
    )
    assert (spec.dtype, spec_weights.dtype) == ("float64", "float64")
