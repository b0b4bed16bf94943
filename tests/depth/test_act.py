import halting as scalar
import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from decoding import check_greedy
from keras import ops

from keras_attn.depth import ACT, Recurrent
from keras_attn.layers import (
    Block,
    FeedForward,
    MultiHeadAttention,
    TokenEmbedding,
    TransformerBlock,
)
from keras_attn.memory import SegmentMemory
from keras_attn.models.causal_language_model import CausalLanguageModel
from keras_attn.patterns import AdaptiveSpan
from keras_attn.testing import check_layer

B, T, S, N, H, D, F, MOST = 3, 5, 4, 2, 3, 11, 13, 6
X, CONTEXT = oracles.random(B, T, D), oracles.random(B, S, D)
REAL = np.arange(T)[None] < np.array([[5], [3], [4]])
VARIANTS = ["graves", "tensor2tensor", "tensor2tensor_accumulated"]


class Counting(TransformerBlock):
    """Transformer block that counts its calls."""

    def build(self, *shapes):
        super().build(*shapes)
        self.calls = self.add_weight((), "zeros", trainable=False)

    def sublayers(self, *inputs, **arguments):
        self.calls.assign(self.calls + 1)
        return super().sublayers(*inputs, **arguments)


class Dropping(Block):
    """A block of dropout with rate 0.5."""

    def __init__(self):
        super().__init__()
        self.drop = keras.layers.Dropout(0.5)

    def apply(self, x, call):
        return self.drop(x, training=call.training), {}


def block(kind=TransformerBlock, cross=False, score="scaled_dot", pattern="causal", **arguments):
    return kind(
        MultiHeadAttention(N, H, score=score, pattern=pattern),
        FeedForward(F),
        cross_attention=MultiHeadAttention(N, H) if cross else None,
        **arguments,
    )


def built(max_steps=MOST, bias=None, of_block=(), **arguments):
    """Return a layer whose positions take different numbers of steps."""
    of_block = dict(of_block)
    if bias is None:
        sooner = arguments.get("position") and arguments.get("variant", "graves") != "graves"
        bias = -2.5 if sooner else 0.5
    layer = ACT(block(**of_block), max_steps, halting_bias=bias, **arguments)
    layer.build(X.shape, *([CONTEXT.shape] if of_block.get("cross") else []))
    oracles.scramble(layer, seed=2, scale=0.5)
    layer.halting_unit.set_weights([oracles.random(D, 1, scale=2), np.array([bias])])
    return layer


def oracle(layer, x=X, real=REAL):
    """Compute output, N, R and all halting probabilities by loops in float64."""
    kernel, bias = (oracles.numpy_of(w) for w in layer.halting_unit.weights)
    weights, length = oracles.block_weights(layer.block), x.shape[1]
    allowed = real[:, None, None] & oracles.causal(length, length)
    is_graves = layer.variant == "graves"
    before, states, probabilities = np.asarray(x, "float64"), [], []
    for t in range(1, layer.max_steps + 1):
        read = before.copy()
        if layer.position is not None:
            for i in range(1, length + 1):
                read[:, i - 1] += oracles.sinusoids(i, D) + oracles.sinusoids(t, D)
        after = oracles.block(read, weights, allowed)
        probability = np.zeros(x.shape[:2])
        for place in np.ndindex(x.shape[:2]):
            seen = after[place] if is_graves else read[place]
            probability[place] = 1 / (1 + np.exp(-(seen @ kernel[:, 0] + bias[0])))
            so_far = sum(step[place] for step in probabilities)
            # Who has halted keeps its state, and so does padding.
            if is_graves and (so_far >= 1 - layer.epsilon or not real[place]):
                after[place] = before[place]
        probabilities.append(probability)
        states.append(after)
        before = after
    rule = scalar.graves if is_graves else scalar.tensor2tensor
    output, taken, remainder = np.zeros(x.shape), np.zeros(x.shape[:2]), np.zeros(x.shape[:2])
    for place in np.ndindex(x.shape[:2]):
        if real[place]:
            h = [step[place] for step in probabilities]
            found, taken[place], remainder[place] = rule(h, layer.max_steps, layer.epsilon)
            for weight, state in zip(found, states, strict=False):
                if layer.variant == "tensor2tensor":
                    output[place] *= 1 - weight
                output[place] += weight * state[place]
    return output, taken, remainder, probabilities


def in_graph(layer, jit_compile=False, **arguments):
    return tf.function(lambda x: layer(x, **arguments), jit_compile=jit_compile)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("position", [None, "timestep"])
def test_output_equals_the_formula(variant, position):
    layer = built(variant=variant, position=position, ponder_loss=0.3)
    expected, taken, remainder, _ = oracle(layer)
    assert len(set(taken[REAL])) >= 3, "positions should take different numbers of steps"
    np.testing.assert_allclose(layer(X, padding_mask=REAL), expected, atol=5e-5)
    (loss,) = layer.losses
    again = ACT.from_config(layer.get_config())
    again.build(X.shape)
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(again(X, padding_mask=REAL), layer(X, padding_mask=REAL))
    assert float(loss) == pytest.approx(0.3 * (taken + remainder)[REAL].mean(), rel=1e-5)


@pytest.mark.parametrize(
    "shape, jit_compile",
    [
        ((None, None, D), False),
        pytest.param((None, None, D), True, marks=pytest.mark.slow),
        pytest.param(X.shape, True, marks=pytest.mark.slow),
    ],
    ids=["graph", "xla of any size", "xla of one size"],
)
def test_early_exit_equals_all_steps(shape, jit_compile):
    """A call that returns scores takes all steps; output, loss and gradients stay the same."""
    layer = built(max_steps=4, bias=4.0, position="timestep", ponder_loss=0.3)
    assert 1 < oracle(layer)[1].max() < 4
    weights = [variable.value for variable in layer.trainable_weights]

    def run(x, real, all_steps=False):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, padding_mask=real, return_attention_scores=all_steps)
            y, loss = y[0] if all_steps else y, layer.losses[0]
            total = ops.sum(y**3) + 5 * loss
        return [y, loss, *tape.gradient(total, [x, *weights])]

    signature = [tf.TensorSpec(shape), tf.TensorSpec(shape[:2], tf.bool)]
    early = tf.function(run, signature, jit_compile=jit_compile)(X, REAL)
    for one, other in zip(early, run(tf.constant(X), REAL, all_steps=True), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5 * max(1, np.abs(other).max()))


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_the_loop_ends_with_the_last_real_position(mode):
    layer = built(max_steps=50, bias=2.0, of_block={"kind": Counting})
    last = oracle(layer)[1].max()
    assert 2 < last < 50
    run = layer if mode == "eager" else tf.function(layer)
    layer.block.calls.assign(0)
    run(tf.constant(X), padding_mask=tf.constant(REAL))
    assert int(layer.block.calls) == last


@pytest.mark.parametrize("bias, steps", [(20.0, 1), (-20.0, MOST)])
def test_limits(bias, steps):
    """Halting at once takes one step; never halting takes all steps."""
    layer = built(bias=bias, position="timestep", of_block={"residual": "pre_norm"})
    layer.halting_unit.kernel.assign(np.zeros((D, 1)))
    plain = Recurrent(layer.block, steps, "timestep")
    plain.build(X.shape)
    plain.norm.set_weights(layer.norm.get_weights())
    expected = np.asarray(plain(X, padding_mask=REAL))[REAL]
    for run in (layer, in_graph(layer, padding_mask=REAL)):
        arguments = {"padding_mask": REAL} if run is layer else {}
        np.testing.assert_allclose(np.asarray(run(X, **arguments))[REAL], expected, atol=1e-5)


def test_unused_steps_change_nothing():
    layer = built(max_steps=9, bias=2.0)
    more = ACT.from_config({**layer.get_config(), "max_steps": 31})
    more.build(X.shape)
    more.set_weights(layer.get_weights())
    assert oracle(layer)[1].max() < 9
    np.testing.assert_array_equal(more(X, padding_mask=REAL), layer(X, padding_mask=REAL))
    assert float(more.losses[0]) == float(layer.losses[0])


@pytest.mark.parametrize("variant", VARIANTS[:2])
def test_rows_are_independent_and_padding_has_no_influence(variant):
    layer = built(variant=variant, position="timestep")
    whole = np.asarray(in_graph(layer, padding_mask=REAL)(X))
    ponder = 0.0
    for b, length in enumerate(REAL.sum(axis=1)):
        alone = layer(X[b : b + 1, :length])
        np.testing.assert_allclose(whole[b, :length], alone[0], atol=1e-5)
        ponder += length * float(layer.losses[0]) / REAL.sum()
    longer = np.concatenate([X, 9 * np.ones((B, 4, D), "float32")], axis=1)
    mask = np.concatenate([REAL, np.zeros((B, 4), bool)], axis=1)
    found = np.asarray(layer(longer, padding_mask=mask))
    assert float(layer.losses[0]) == pytest.approx(ponder, rel=1e-5)
    np.testing.assert_allclose(found[:, :T][REAL], whole[REAL], atol=1e-5)
    assert not found[~mask].any()


def test_rows_of_padding_have_no_loss():
    layer = built()
    layer(X, padding_mask=np.zeros((B, T), bool))
    assert float(layer.losses[0]) == 0


@pytest.mark.parametrize("variant", VARIANTS[:2])
def test_later_positions_have_no_influence(variant):
    """The Jacobian shows that states and step counts do not depend on later positions."""
    layer = built(variant=variant, position="timestep")
    x = tf.constant(X)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        parts = [ops.sum(layer(x)[:, t] * oracles.random(D)) for t in range(T)]
    for t, part in enumerate(parts):
        slopes = np.asarray(tape.gradient(part, x))
        assert slopes[:, : t + 1].all() and not slopes[:, t + 1 :].any()
    run = in_graph(layer)
    before = np.asarray(run(X))
    for t in range(1, T):
        changed = X.copy()
        changed[:, t:] = oracles.random(B, T - t, D, seed=t, scale=5)
        np.testing.assert_allclose(run(changed)[:, :t], before[:, :t], atol=1e-6)


@pytest.mark.parametrize("variant, grows", [*zip(VARIANTS, [False, True, False])])
def test_cached_steps_equal_one_pass(variant, grows):
    layer = built(variant=variant, position="timestep", of_block={"cross": True})
    whole = layer(X, CONTEXT)
    cache = layer.initial_cache(B, None if grows else T + 2)
    context_cache, start = layer.context_cache(ops.array(CONTEXT)), 0
    for length in (2, 1, 2):
        part = X[:, start : start + length]
        step, cache = layer(part, cache=cache, context_cache=context_cache)
        np.testing.assert_allclose(step, whole[:, start : start + length], atol=5e-5)
        start += length
    assert layer.losses == []


def test_generation_equals_the_uncached_loop():
    depth = ACT(block(), 3, halting_bias=-1.5, position="timestep")
    model = CausalLanguageModel(TokenEmbedding(17, D), depth)
    oracles.scramble(model, scale=0.5)
    check_greedy(model, np.array([[5, 3, 11, 0], [7, 2, 9, 4]]), max_length=3)


def test_segments_with_memory_equal_one_pass():
    layer, memory = built(of_block={"score": "relative"}), SegmentMemory(T)
    whole = layer(X)
    state = memory.initial(B, layer.num_layers, D)
    for start, end in ((0, 2), (2, 5)):
        part, read = layer(X[:, start:end], **state)
        np.testing.assert_allclose(part, whole[:, start:end], atol=5e-5)
        state = memory.extend(state, read)


def test_returned_hidden_states_are_the_states_after_each_step():
    layer = built(position="timestep")
    output, states = layer(X, return_hidden_states=True)
    assert len(states) == MOST
    np.testing.assert_allclose(output, layer(X), atol=1e-6)
    _, taken, _, _ = oracle(layer, real=np.ones((B, T), bool))
    for b, t in np.ndindex(B, T):
        for n in range(1, MOST):
            same = np.array_equal(states[n][b, t], states[n - 1][b, t])
            assert same == (n >= taken[b, t])


def test_gradient_of_the_ponder_loss():
    """By the bias: minus the mean of h (1 - h) before N. By other weights: finite differences."""
    layer = built(ponder_loss=0.3)
    _, taken, _, probabilities = oracle(layer)
    closed = 0.0
    for place in zip(*np.nonzero(REAL), strict=True):
        h = np.array([step[place] for step in probabilities[: int(taken[place]) - 1]])
        closed -= 0.3 * np.sum(h * (1 - h)) / REAL.sum()

    def ponder(x):
        layer(x, padding_mask=REAL)
        return layer.losses[0]

    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = ponder(x)
    by_x, by_bias = tape.gradient(loss, [x, layer.halting_unit.bias.value])
    assert float(by_bias[0]) == pytest.approx(closed, rel=1e-4)
    direction = np.asarray(by_x) / np.linalg.norm(by_x)
    slope = (ponder(X + 1e-2 * direction) - ponder(X - 1e-2 * direction)) / 2e-2
    assert float(slope) == pytest.approx(float(np.linalg.norm(by_x)), rel=0.02)


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_each_step_has_its_own_dropout(mode):
    """After three steps of dropout at 0.5, an eighth is left."""
    layer = ACT(Dropping(), 3, halting_bias=-20.0)
    layer.build((1, 1000, 7))
    run = tf.function(layer) if mode == "graph" else layer
    left = np.asarray(run(ops.ones((1, 1000, 7)), training=True)) > 1e-3
    assert abs(left.mean() - 1 / 8) < 0.02


def test_losses_of_the_block_leave_the_loop():
    """The loss of a dynamic span is added at every step taken."""
    pattern = AdaptiveSpan(4, ramp=2, dynamic=True, span_loss=0.5, initial_span=0.3)
    layer = built(of_block={"pattern": pattern}, max_steps=4, bias=-9.0)
    layer(X)
    expected = sum(float(loss) for loss in layer.losses)
    assert len(layer.losses) == 5 and expected > 0.1

    @tf.function
    def run(x):
        layer(x)
        return sum(layer.losses)

    assert float(run(X)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_fit_shows_steps_and_learns_to_take_fewer(tmp_path):
    layer = built(max_steps=4, ponder_loss=1.0, name="think")
    inputs = keras.Input((None, D))
    model = keras.Model(inputs, layer(keras.layers.Masking()(inputs)))
    model.compile(keras.optimizers.SGD(0.5), jit_compile=False)
    x = np.where(REAL[..., None], X, 0).astype("float32")
    expected = oracle(layer, x)[1][REAL].mean()
    layer(x, padding_mask=REAL)
    assert int(layer.steps_taken.variables[1]) == 0, "a call outside of training counted"
    found = model.evaluate(x, np.zeros(B), verbose=0, return_dict=True)
    assert found["think_steps"] == pytest.approx(expected)
    assert found["loss"] == pytest.approx(float(ops.sum(layer_loss(layer, x))), rel=1e-5)
    logs = model.fit(x, np.zeros(B), validation_data=(x, np.zeros(B)), epochs=3, verbose=0).history
    assert logs["think_steps"][0] == pytest.approx(expected)
    assert logs["val_think_steps"][-1] < logs["think_steps"][0]
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    found = again.evaluate(x, np.zeros(B), verbose=0, return_dict=True)
    assert found["think_steps"] == pytest.approx(logs["val_think_steps"][-1])
    assert found["loss"] == pytest.approx(logs["val_loss"][-1], rel=1e-5)


def layer_loss(layer, x):
    layer(x, padding_mask=REAL)
    return layer.losses[0]


@pytest.mark.parametrize("policy, tolerance", [("mixed_bfloat16", 0.1), ("mixed_float16", 0.02)])
def test_dtype_policies(policy, tolerance):
    reference = built(position="timestep")
    keras.config.set_dtype_policy(policy)
    layer = built(position="timestep")
    output = layer(X, padding_mask=REAL)
    assert keras.backend.standardize_dtype(output.dtype) == layer.compute_dtype
    assert keras.backend.standardize_dtype(layer.losses[0].dtype) == "float32"
    expected = reference(X, padding_mask=REAL)
    np.testing.assert_allclose(oracles.numpy_of(output), expected, atol=tolerance)


@pytest.mark.slow
def test_check_layer():
    layer = ACT(block(residual="pre_norm"), 3, position="timestep")
    # Other tests here compile, save and compare precisions; one loads files in a fresh process.
    skip = ["fresh_process", "graph", "precision", "saving", "unknown_sizes", "xla"]
    check_layer(layer, (2, 5, 6), skip=skip).raise_if_any()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"max_steps": 0}, "`max_steps`.*max_steps=0"),
        ({"max_steps": 2, "epsilon": -1}, "`epsilon`.*epsilon=-1"),
        ({"max_steps": 2, "ponder_loss": "much"}, "`ponder_loss`.*'much'"),
        ({"max_steps": 2, "variant": "basic"}, "`variant`.*tensor2tensor.*'basic'"),
        ({"max_steps": 2, "position": "here"}, "position='here'.*timestep"),
        ({"max_steps": 2, "remat": True}, "`remat`.*remat=True"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        ACT(block(), **arguments)


def test_mask_of_wrong_shape_raises():
    with pytest.raises(ValueError, match=r"`padding_mask`.*\(3, 5\).*\(3, 4\)"):
        built()(X, padding_mask=REAL[:, :4])
