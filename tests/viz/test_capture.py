import keras
import numpy as np
import pytest
from catalogue_models import inputs_of, make
from keras import ops
from other_backend import needs_jax, start_on

from keras_attn import depth, patterns
from keras_attn.attention import captures
from keras_attn.compat.keras_layers import flatten_layers
from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
from keras_attn.scores import FAVOR
from keras_attn.viz import capture_attention

B, N, T, S, H, D = 2, 3, 7, 11, 5, 13
# Memories, halting in an encoder-decoder, reversible layers, and pairs of maps.
MODELS = {
    "models.transformer_xl": "auto",
    "models.universal_transformer": "auto",
    "depth.Reversible": "blockwise",
    "layers.DifferentialAttention": "blockwise",
    "memory.KNNMemory": "auto",
}


def arrays(tensors):
    return [ops.convert_to_numpy(x) for x in keras.tree.flatten(tensors)]


def assert_equal(first, second):
    for x, y in zip(arrays(first), arrays(second), strict=True):
        np.testing.assert_array_equal(x, y)


def model_and_inputs(name, implementation):
    model = make(name)
    inputs, _ = inputs_of(model)
    if getattr(model, "memory", None) is not None:
        inputs |= {key: ops.convert_to_numpy(x) for key, x in model.initial_memory(B).items()}
    for layer in flatten_layers(model):
        if isinstance(layer, MultiHeadAttention):
            layer.implementation = implementation
    return model, inputs


def assert_rows_are_distributions(scores):
    assert scores
    for array in arrays(scores):
        sums = array.sum(axis=-1)
        assert array.ndim == 4 and array.min() >= 0
        assert np.all((abs(sums - 1) < 1e-5) | (sums == 0))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["models.reformer", "models.transformer_xl"])
def test_a_call_gives_the_same_bits(name):
    """By the plans of the patterns, which keep no scores."""
    model, inputs = model_and_inputs(name, "blockwise")
    expected = model(inputs)
    with capture_attention(model) as scores:
        outputs = model(inputs)
    assert_equal(outputs, expected)
    assert_rows_are_distributions(scores)


@pytest.mark.slow
@pytest.mark.parametrize("name, implementation", MODELS.items())
def test_calls_and_predict_give_the_same_bits(name, implementation):
    model, inputs = model_and_inputs(name, implementation)
    expected, called = model.predict(inputs, verbose=0), model(inputs)
    with capture_attention(model) as eager:
        assert_equal(model(inputs), called)
    assert_rows_are_distributions(eager)
    with capture_attention(model) as scores:
        outputs = model.predict(inputs, verbose=0)
    assert_equal(outputs, expected)
    assert scores.keys() == eager.keys()
    for x, y in zip(arrays(scores), arrays(eager), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)
    assert_equal(model.predict(inputs, verbose=0), expected)


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


@pytest.mark.parametrize(
    "arguments",
    [
        {"pattern": patterns.Local(3), "implementation": "blockwise"},
        {"pattern": patterns.LSH(2), "implementation": "blockwise", "score": "shared_qk"},
        {"pattern": patterns.Strided(3), "implementation": "dense"},
        {"pattern": patterns.AdaptiveSpan(6), "implementation": "dense"},
        {"pattern": "causal", "implementation": "blockwise", "sinks": True},
        {"pattern": "causal", "score": FAVOR(5)},
    ],
    ids=str,
)
def test_scores_are_those_that_the_layer_returns(arguments):
    layer = MultiHeadAttention(N, H, **arguments)
    x = random(B, T, D)
    outputs = layer(x, x)
    _, expected = layer(x, x, return_attention_scores=True)
    with capture_attention(layer) as scores:
        np.testing.assert_array_equal(layer(x, x), outputs)
    (captured,) = scores.values()
    np.testing.assert_array_equal(captured, expected)


class Reader(keras.Model):
    """A user's model, with attention to itself and to another text in attributes of all kinds."""

    def __init__(self):
        super().__init__()
        self._own = MultiHeadAttention(N, H, name="own")
        self.steps = [keras.layers.Dense(D), MultiHeadAttention(N, H, pattern="causal")]
        self.parts = {"cross": MultiHeadAttention(N, H, name="cross")}

    def call(self, inputs):
        x, context = inputs
        x = self._own(x, x)
        x = self.steps[1](self.steps[0](x), x)
        return self.parts["cross"](x, context)


def functional():
    x, context = keras.Input((T, D)), keras.Input((S, D))
    own = MultiHeadAttention(N, H, name="own")(x, x)
    cross = MultiHeadAttention(N, H, name="cross")(own, context)
    return keras.Model([x, context], cross)


@pytest.mark.parametrize("make_model", [Reader, functional])
def test_a_model_of_the_user_is_captured(make_model):
    model, inputs = make_model(), [random(B, T, D), random(B, S, D, seed=1)]
    with capture_attention(model) as scores:
        model(inputs)
    shapes = {path.split("/")[-1]: array.shape for path, array in scores.items()}
    assert shapes.pop("own") == (B, N, T, T)
    assert shapes.pop("cross") == (B, N, T, S)
    assert list(shapes.items()) == ([("1", (B, N, T, T))] if make_model is Reader else [])
    assert_rows_are_distributions(scores)


def test_a_repeated_block_gives_a_list_of_its_steps():
    block = TransformerBlock(MultiHeadAttention(N, H), FeedForward(17))
    stack, x = depth.Recurrent(block, 4), random(B, T, D)
    _, expected = stack(x, return_attention_scores=True)
    with capture_attention(stack) as scores:
        stack(x)
    (steps,) = scores.values()
    assert len(steps) == 4
    for captured, step in zip(steps, expected, strict=True):
        np.testing.assert_array_equal(captured, step["attention"])


@pytest.mark.slow
def test_a_halting_block_gives_the_steps_that_were_taken():
    """In eager calls and in the loop of a graph alike."""
    block = TransformerBlock(MultiHeadAttention(N, H), FeedForward(17))
    x = keras.Input((T, D))
    model = keras.Model(x, depth.ACT(block, max_steps=6, halting_bias=-0.5)(x))
    inputs = random(B, T, D)
    with capture_attention(model) as eager:
        model(inputs)
    with capture_attention(model) as compiled:
        model.predict(inputs, verbose=0)
    (eager,), (compiled,) = eager.values(), compiled.values()
    assert 1 < len(eager) == len(compiled) <= 6
    for x, y in zip(eager, compiled, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)


def test_a_padded_query_and_key_have_no_weight():
    model, x = functional(), random(B, T, D)
    mask = np.arange(T) < 4
    layer = model.get_layer("own")
    with capture_attention(model) as scores:
        layer(x, x, value_mask=np.tile(mask, (B, 1)))
        layer(x, x, value_mask=np.zeros((B, T), bool))
    padded, empty = scores["own"]
    assert not padded[..., 4:].any() and not empty.any()
    np.testing.assert_allclose(padded.sum(-1), 1, rtol=1e-6)


@pytest.mark.slow
def test_batches_of_predict_are_joined_for_each_scope_around_it():
    model, inputs = functional(), [random(5, T, D), random(5, S, D, seed=1)]
    with capture_attention(model) as whole:
        model(inputs)
    with capture_attention(model) as outer, capture_attention(model) as inner:
        model.predict(inputs, batch_size=2, verbose=0)
    assert outer.keys() == inner.keys() == {"own", "cross"}
    assert_equal(list(outer.values()), list(inner.values()))
    for path, scores in whole.items():
        np.testing.assert_allclose(outer[path], scores, atol=1e-6)


def test_batches_of_several_lengths_are_refused():
    x = keras.Input((None, D))
    model = keras.Model(x, MultiHeadAttention(N, H)(x, x))
    with pytest.raises(ValueError, match="must have one length.* 7, 7.* 4, 4"):
        with capture_attention(model):
            model.predict(random(B, T, D), verbose=0)
            model.predict(random(B, 4, D), verbose=0)


def test_a_scope_in_which_nothing_ran_warns():
    with pytest.warns(UserWarning, match="Nothing was captured"), capture_attention(functional()):
        pass


class Towers(keras.Model):
    """Layers of one name in a dict, and one in a private attribute, which is not built."""

    def __init__(self):
        super().__init__()
        self.by_length = {n: MultiHeadAttention(N, H, name="attention") for n in (T, S)}
        self._last = MultiHeadAttention(N, H, name="last")

    def call(self, inputs):
        outputs = [self.by_length[x.shape[1]](x, x) for x in inputs]
        return self._last(*outputs)


@pytest.mark.slow
def test_each_layer_has_a_path_of_its_own():
    model = Towers()
    with capture_attention(model) as scores:
        model([random(B, T, D), random(B, S, D)])
    assert {path: array.shape[2:] for path, array in scores.items()} == {
        "attention": (T, T),
        "attention (2)": (S, S),
        "last": (T, S),
    }


def test_nothing_remains_after_the_scope():
    model, inputs = functional(), [random(B, T, D), random(B, S, D, seed=1)]
    model.make_predict_function()
    before = model.predict_function
    with pytest.raises(KeyError), capture_attention(model) as scores:
        raise KeyError
    assert model.predict_function is before and captures.record is None
    model(inputs)
    assert scores == {}


def test_a_model_without_attention_is_refused():
    model = keras.Sequential([keras.layers.Dense(3)])
    with pytest.raises(ValueError, match="must hold an attention layer"):
        with capture_attention(model):
            pass


def test_more_scores_than_the_limit_are_refused():
    """`own` takes 4 B N T T bytes, and `cross` 4 B N T S."""
    model, inputs = functional(), [random(B, T, D), random(B, S, D, seed=1)]
    whole = 4 * B * N * T * (T + S)
    with capture_attention(model, max_bytes=whole) as scores:
        model(inputs)
    assert sum(x.nbytes for x in scores.values()) == whole
    message = f"those of cross, {B} x {N} x {T} x {S}, take .* max_bytes={whole - 1}"
    with pytest.raises(ValueError, match=message):
        with capture_attention(model, max_bytes=whole - 1):
            model(inputs)


def test_what_xla_compiles_is_refused_in_a_sentence():
    model, inputs = functional(), [random(B, T, D), random(B, S, D, seed=1)]
    model.jit_compile = True
    with pytest.raises(ValueError, match="model.jit_compile = False"), capture_attention(model):
        model.predict(inputs, verbose=0)


ON_JAX = """
import keras, numpy as np
from keras_attn import depth, layers, viz

x = keras.Input((None, 13))
block = lambda index: layers.TransformerBlock(
    layers.MultiHeadAttention(3, 5, pattern="causal"), layers.FeedForward(17), residual="pre_norm")
model = keras.Model(x, depth.Reversible(block, 2)(depth.Recurrent(block(0), 2)(x)))
inputs = np.random.default_rng(0).normal(size=(3, 7, 13)).astype("float32")

def captured(capture, model, count, shape):
    # The same in a call and in compiled batches.
    expected = np.asarray(model(inputs))
    with capture(model) as eager:
        assert np.array_equal(np.asarray(model(inputs)), expected)
    with capture(model) as compiled:
        outputs = model.predict(inputs, batch_size=2, verbose=0)
    assert np.allclose(outputs, expected, atol=1e-5)
    assert len(eager) == count and eager.keys() == compiled.keys()
    for a, b in zip(keras.tree.flatten(eager), keras.tree.flatten(compiled), strict=True):
        assert a.shape == b.shape == shape and np.allclose(a, b, atol=1e-5)
    return expected, eager

expected, eager = captured(viz.capture_attention, model, 3, (3, 3, 7, 7))
for a in keras.tree.flatten(eager):
    assert np.allclose(a.sum(-1), 1, atol=1e-5)
for limit, second, words in ((2, inputs, "max_bytes"), (9, inputs[:, :5], "have one length")):
    try:
        with viz.capture_attention(model, max_bytes=limit * a.nbytes):
            model.predict(inputs, verbose=0)
            model.predict(second, verbose=0)
    except ValueError as error:
        assert words in str(error)
    else:
        raise AssertionError
    with viz.capture_attention(model) as scores:  # calls that were not made are forgotten
        assert np.array_equal(np.asarray(model(inputs)), expected)
    assert scores.keys() == eager.keys()
model = keras.Model(x, block(0)(x))
model.compile("sgd", "mse")
with viz.capture_attention(model) as scores:
    model.fit(inputs, inputs, verbose=0)
assert [a.shape for a in scores.values()] == [(3, 3, 7, 7)]
hidden = depth.ACT(block(0), 5, halting_bias=-1.0)(x)
model = keras.Model(x, depth.ACTRNN(depth.ACTCell(keras.layers.SimpleRNNCell(3), 4))(hidden))
_, halting = captured(viz.capture_halting, model, 2, (3, 7))
assert all(a.min() >= 0 for a in keras.tree.flatten(halting))
"""


@pytest.mark.slow
@needs_jax
def test_scores_and_halting_leave_what_jax_compiles():
    done = start_on("jax", ON_JAX)
    assert done.returncode == 0, done.stderr[-3000:]
