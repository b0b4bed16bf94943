import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from act_rnns import CELLS, REAL, B, D, T, U, X, built, oracle
from keras import ops

from keras_attn.depth import ACT, ACTRNN, ACTCell, Recurrent
from keras_attn.layers import MultiHeadAttention, SeparableConvTransition, TransformerBlock
from keras_attn.testing import check_layer


def test_output_equals_the_formula():
    layer = built("lstm", return_state=True)
    expected, states, taken, remainder = oracle(layer.cell, X, REAL)
    assert len(set(taken[REAL])) >= 3, "inputs should take different numbers of steps"
    output, *final_states = layer(X, mask=tf.constant(REAL), training=False)
    (loss,) = layer.losses
    np.testing.assert_allclose(output, expected, atol=1e-5)
    oracles.check_each(final_states[:-1], states, atol=1e-5)
    sums = np.stack([(x * REAL).sum(axis=1) for x in (taken, remainder)], axis=1)
    np.testing.assert_allclose(final_states[-1], sums, atol=1e-4)
    assert float(loss) == pytest.approx(0.3 * (taken + remainder)[REAL].mean(), rel=1e-5)
    assert float(layer.steps_taken.result()) == pytest.approx(taken[REAL].mean())


def test_limits():
    """Halting at once equals the inner cell with the flag set; `keras.layers.RNN` runs it too."""
    layer = built("gru", kind=keras.layers.RNN)
    at_once = ACTCell.from_config({**layer.cell.get_config(), "epsilon": 1.0})
    thinking = keras.layers.RNN(at_once, return_sequences=True)
    thinking.build(X.shape)
    thinking.set_weights(layer.get_weights())
    plain = keras.layers.RNN(CELLS["gru"](U), return_sequences=True)
    plain.build((B, T, D + 1))
    plain.set_weights(layer.cell.cell.get_weights())
    flagged = np.concatenate([X, np.ones((B, T, 1), "float32")], axis=-1)
    np.testing.assert_allclose(thinking(X), plain(flagged), atol=1e-6)
    assert np.abs(np.asarray(layer(X)) - plain(flagged)).max() > 0.01


@pytest.mark.slow
def test_halted_rows_do_not_diverge():
    """The inner cell multiplies by 30 at each step, and another row takes 29 steps."""
    cell = ACTCell(CELLS["simple"](U, activation="relu"), 29)
    layer = ACTRNN(cell)
    layer.build((2, 1, D))
    kernel = np.concatenate([np.eye(D, U), np.zeros((1, U))])
    cell.cell.set_weights([kernel, 30 * np.eye(U), np.zeros(U)])
    cell.halting_unit.set_weights([np.full((U, 1), 100.0), np.array([-30.0])])
    output = layer(np.array([[[1.0, 0.0]], [[0.0, 0.0]]], "float32"))
    np.testing.assert_allclose(output, np.eye(2, U) * [[1], [0]], atol=1e-5)


@pytest.mark.slow
def test_gradient_in_a_graph_is_that_of_eager_calls():
    layer = built("simple", max_steps=3)
    weights = [variable.value for variable in layer.trainable_weights]

    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = ops.sum(layer(x, mask=tf.constant(REAL)) ** 3) + 5 * layer.losses[0]
        return tape.gradient(total, [x, *weights])

    graph = tf.function(run, [tf.TensorSpec((None, None, D))])(X)
    for one, other in zip(graph, run(tf.constant(X)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5 * max(1, np.abs(other).max()))
        assert np.abs(other).max() > 0


@pytest.mark.slow
def test_dropout_mask_is_constant_along_a_sequence():
    """As in Keras. A graph leaves no mask for the next call."""
    layer = built("lstm", max_steps=2, cell_arguments={"dropout": 0.5, "recurrent_dropout": 0.3})
    run = tf.function(lambda x: layer(x, training=True))
    first, second = np.asarray(run(X)), np.asarray(run(X))
    calm = np.asarray(layer(X))
    assert np.abs(first - second).max() > 0.01 and np.abs(first - calm).max() > 0.01
    np.testing.assert_array_equal(layer(X, training=False), calm)
    # Of an input alone, dropped or not, there are few outcomes at the first of all steps.
    layer = built(cell_arguments={"dropout": 0.5}, max_steps=1)
    layer.cell.cell.recurrent_kernel.assign(np.zeros((U, U)))
    output = np.asarray(layer(np.ones((40, T, D), "float32"), training=True))
    assert len(np.unique(output[:, 0].round(4), axis=0)) == 2 ** (D + 1)
    np.testing.assert_allclose(output, np.broadcast_to(output[:, :1], output.shape), atol=1e-6)


@pytest.mark.slow
def test_stateful_layer_counts_steps_per_batch():
    layer = ACTRNN(built(max_steps=3).cell, stateful=True)
    layer.build(X.shape)
    layer(X)
    first = float(layer.losses[0])
    layer(X)
    assert float(layer.losses[0]) == pytest.approx(first, rel=0.5)
    layer.reset_state()
    layer(X)
    assert float(layer.losses[0]) == pytest.approx(first, rel=1e-6)


@pytest.mark.slow
def test_stacked_cells_add_their_own_losses():
    cells = [
        ACTCell(CELLS["lstm"](U), 3),
        CELLS["gru"](4),
        ACTCell(CELLS["simple"](5), 2, ponder_loss=0),
    ]
    layer = ACTRNN(cells, return_state=True)
    output, *states = layer(X)
    assert output.shape == (B, 5) and [len(state) for state in states[::2]] == [3, 2]
    (loss,) = layer.losses
    assert float(loss) == pytest.approx(0.01 * float(ops.sum(states[0][-1])) / (B * T), rel=1e-5)


@pytest.mark.slow
def test_initial_state_may_be_that_of_the_inner_cell():
    """Two parts of a sequence equal the whole, and each part has its own sums."""
    layer = built("lstm", max_steps=2, return_state=True)
    whole = layer(X)[0]
    first, *states = layer(X[:, :2])
    last, h, c, sums = layer(X[:, 2:], initial_state=[*states[:2]])
    np.testing.assert_allclose(ops.concatenate([first, last], axis=1), whole, atol=1e-5)
    np.testing.assert_array_equal(layer(X[:, 2:], initial_state=states)[1], h)
    np.testing.assert_allclose(layer(X)[3], states[2] + sums, atol=1e-5)
    stacked = ACTRNN([keras.layers.GRUCell(U), ACTCell(keras.layers.LSTMCell(U), 2)])
    zeros = np.zeros((B, U), "float32")
    output = stacked(X, initial_state=[[zeros], [zeros, zeros]])
    np.testing.assert_array_equal(output, stacked(X))


def test_keras_rnn_warns_that_it_adds_no_ponder_loss():
    layer = built(kind=keras.layers.RNN)
    with pytest.warns(UserWarning, match="`keras_attn.depth.ACTRNN`"):
        layer(X, training=True)
    assert layer.losses == []


@pytest.mark.slow
def test_mixed_float16():
    expected = built("lstm", max_steps=3)(X)
    keras.config.set_dtype_policy("mixed_float16")
    layer = built("lstm", max_steps=3, return_state=True)
    output, *states = layer(X)
    assert keras.backend.standardize_dtype(output.dtype) == layer.compute_dtype
    np.testing.assert_allclose(oracles.numpy_of(output), expected, atol=0.02)
    assert keras.backend.standardize_dtype(layer.losses[0].dtype) == "float32"
    assert layer.cell.cell.compute_dtype == layer.compute_dtype != "float32"


@pytest.mark.slow
def test_check_layer():
    layer = ACTRNN(ACTCell(keras.layers.GRUCell(5), 2), return_sequences=True)
    checks = ["config", "building", "batch_independence", "implicit_mask"]
    check_layer(layer, (2, 3, 6), only=checks).raise_if_any()


@pytest.mark.slow
def test_fit_shows_steps_and_files_load(tmp_path):
    """One model with all layers that halt."""

    def block(index):
        return TransformerBlock(
            MultiHeadAttention(1, 3, pattern="causal"), SeparableConvTransition(5, causal=True)
        )

    inputs = keras.Input((None, D))
    cell = ACTCell(keras.layers.SimpleRNNCell(6), 2)
    x = ACTRNN(cell, return_sequences=True, name="read")(inputs)
    x = ACT(block, 2, position="timestep", name="think")(x)
    model = keras.Model(inputs, Recurrent(block, 2, position="timestep")(x))
    model.compile("sgd", "mse", run_eagerly=True)
    logs = model.fit(X, np.zeros((B, T, 6)), verbose=0).history
    assert {"loss", "read_steps", "think_steps"} == set(logs)
    assert all(1 <= logs[name][0] <= 2 for name in ("read_steps", "think_steps"))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again(X), model(X), atol=1e-6)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: ACTCell(5, 2), "`cell` must be a Keras RNN cell.*cell=5"),
        (lambda: ACTCell(keras.layers.Dense(3), 2), "`cell` must be a Keras RNN cell.*Dense"),
        (lambda: ACTCell(keras.layers.LSTM(3), 2), "`cell` must be a Keras RNN cell.*<LSTM "),
        (lambda: ACTCell(CELLS["gru"](3), 0), "`max_steps`.*max_steps=0"),
        (lambda: ACTCell(CELLS["gru"](3), 2, epsilon=-1), "`epsilon`.*epsilon=-1"),
        (lambda: ACTRNN(CELLS["gru"](3)), "`cell` must be an `ACTCell`.*GRUCell"),
        (lambda: ACTRNN(ACTCell(CELLS["gru"](3), 2))(X, [X[:, 0]] * 3), r"`initial_state`.*3 for"),
        (lambda: ACTCell(CELLS["gru"](3), 2).build((2, 3, 4)), r"`inputs`.*\(2, 3, 4\)"),
    ],
)
def test_invalid_arguments_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call()
