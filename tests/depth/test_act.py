"""Output, steps and losses of ACT against loops in float64, and its early exit."""

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from act_depths import MOST, REAL, VARIANTS, B, D, T, X, built, oracle
from keras import ops
from marks import slow

from keras_attn.depth import ACT, Halting, Recurrent
from keras_attn.layers import Block, TransformerBlock
from keras_attn.patterns import AdaptiveSpan


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


@pytest.mark.parametrize(
    "variant, position, mode",
    [
        slow(VARIANTS[0], None, "xla"),
        (VARIANTS[1], "timestep", "eager"),
        slow(VARIANTS[2], None, "graph"),
    ],
)
def test_output_loss_steps_and_remainders_equal_the_formula(variant, position, mode):
    layer = built(variant=variant, position=position, ponder_loss=0.3)
    expected, taken, remainder, _ = oracle(layer)
    assert len(set(taken[REAL])) >= 3, "positions should take different numbers of steps"

    def run(x):
        return layer(x, padding_mask=REAL, return_halting=True), layer.losses[0]

    if mode != "eager":
        run = tf.function(run, jit_compile=mode == "xla")
    (output, halting), loss = run(X)
    np.testing.assert_allclose(output, expected, atol=5e-5)
    assert float(loss) == pytest.approx(0.3 * (taken + remainder)[REAL].mean(), rel=1e-5)
    assert isinstance(halting, Halting)
    assert keras.backend.standardize_dtype(halting.steps.dtype) == "int32"
    np.testing.assert_array_equal(halting.steps, taken)
    np.testing.assert_allclose(halting.remainder, remainder, atol=2e-5)
    again = ACT.from_config(layer.get_config())
    again.build(X.shape)
    again.set_weights(layer.get_weights())
    np.testing.assert_allclose(again(X, padding_mask=REAL), output, atol=1e-5)


@pytest.mark.slow
def test_early_exit_equals_all_steps():
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

    signature = [tf.TensorSpec((None, None, D)), tf.TensorSpec((None, None), tf.bool)]
    early = tf.function(run, signature)(X, REAL)
    oracles.check_each(early, run(tf.constant(X), REAL, all_steps=True), atol=2e-5, scaled=True)


@pytest.mark.parametrize("mode", ["eager", slow("graph")])
def test_the_loop_ends_with_the_last_real_position(mode):
    layer = built(max_steps=11, bias=4.0, block_arguments={"kind": Counting})
    last = oracle(layer)[1].max()
    assert 2 < last < 11
    run = layer if mode == "eager" else tf.function(layer)
    layer.block.calls.assign(0)
    run(tf.constant(X), padding_mask=tf.constant(REAL))
    assert int(layer.block.calls) == last


@pytest.mark.parametrize("bias, steps", [(20.0, 1), slow(-20.0, 3)])
def test_limits(bias, steps):
    """Halting at once takes one step; never halting takes all steps."""
    layer = built(3, bias, position="timestep", block_arguments={"residual": "pre_norm"})
    layer.halting_unit.kernel.assign(np.zeros((D, 1)))
    plain = Recurrent(layer.block, steps, "timestep")
    plain.build(X.shape)
    plain.norm.set_weights(layer.norm.get_weights())
    expected = np.asarray(plain(X, padding_mask=REAL))[REAL]
    np.testing.assert_allclose(np.asarray(layer(X, padding_mask=REAL))[REAL], expected, atol=1e-5)


@pytest.mark.slow
def test_rows_are_independent_and_padding_has_no_influence():
    layer = built(4, position="timestep")
    whole = np.asarray(layer(X, padding_mask=REAL))
    ponder = 0.0
    for b, length in enumerate(REAL.sum(axis=1)):
        alone = layer(X[b : b + 1, :length])
        np.testing.assert_allclose(whole[b, :length], alone[0], atol=1e-5)
        ponder += length * float(layer.losses[0]) / REAL.sum()
    longer = np.concatenate([X, 9 * np.ones((B, 4, D), "float32")], axis=1)
    mask = np.concatenate([REAL, np.zeros((B, 4), bool)], axis=1)
    output = np.asarray(layer(longer, padding_mask=mask))
    assert float(layer.losses[0]) == pytest.approx(ponder, rel=1e-5)
    np.testing.assert_allclose(output[:, :T][REAL], whole[REAL], atol=1e-5)
    assert not output[~mask].any()


def test_rows_of_padding_have_no_loss():
    layer = built()
    layer(X, padding_mask=np.zeros((B, T), bool))
    assert float(layer.losses[0]) == 0


@pytest.mark.slow
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


def test_each_step_has_its_own_dropout():
    """After three steps of dropout at 0.5, an eighth is left."""
    layer = ACT(Dropping(), 3, halting_bias=-20.0)
    layer.build((1, 1000, 7))
    left = np.asarray(layer(ops.ones((1, 1000, 7)), training=True)) > 1e-3
    assert abs(left.mean() - 1 / 8) < 0.02


@pytest.mark.slow
def test_losses_of_the_block_leave_the_loop():
    """The loss of a dynamic span is added at every step taken."""
    pattern = AdaptiveSpan(4, ramp=2, dynamic=True, span_loss=0.5, initial_span=0.3)
    layer = built(block_arguments={"pattern": pattern}, max_steps=3, bias=-9.0)
    layer(X)
    expected = sum(float(loss) for loss in layer.losses)
    assert len(layer.losses) == 4 and expected > 0.1

    @tf.function
    def run(x):
        layer(x)
        return sum(layer.losses)

    assert float(run(X)) == pytest.approx(expected, rel=1e-5)


def test_evaluate_shows_the_steps_and_a_graph_of_an_export_counts_none():
    layer = built(max_steps=3)
    states = keras.Input((None, D))
    model = keras.Model(states, layer(states))
    model.compile("sgd", "mse")
    taken = layer(X, return_halting=True)[1].steps
    shown = model.evaluate(X, X, batch_size=B, verbose=0, return_dict=True)
    assert shown[f"{layer.name}_steps"] == pytest.approx(np.mean(taken), rel=1e-5)

    for training in (None, False):
        graph = tf.function(lambda x, training=training: model(x, training=training))
        operations = graph.get_concrete_function(tf.TensorSpec(X.shape)).graph.get_operations()
        assert not [op.type for op in operations if "Assign" in op.type]
