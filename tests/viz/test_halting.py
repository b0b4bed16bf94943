"""Steps of adaptive computation time from outside of a model, and their picture."""

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from act_depths import REAL, B, D, T, X, built, oracle
from marks import slow

from keras_attn import models
from keras_attn.depth import ACTRNN, ACTCell, Halting, Recurrent
from keras_attn.viz import capture_attention, capture_halting, plot_halting

TOKENS = [f"w{i}" for i in range(T)]


def model():
    layer, inputs = built(), keras.Input((None, D))
    return layer, keras.Model(inputs, layer(keras.layers.Masking()(inputs)))


MASKED = np.where(REAL[..., None], X, 0).astype("float32")


# Batches: on JAX, in test_capture.py.
@pytest.mark.parametrize("run", ["call", slow("function")])
def test_a_model_gives_its_halting_and_the_same_outputs(run):
    layer, whole = model()
    runs = {
        "call": lambda: whole(MASKED),
        "function": lambda: tf.function(lambda x: whole(x))(MASKED),
    }
    expected = runs[run]()
    with capture_halting(whole) as halting:
        outputs = runs[run]()
    np.testing.assert_array_equal(outputs, expected)
    _, taken, remainder, _ = oracle(layer, MASKED)
    (captured,) = halting.values()
    assert isinstance(captured, Halting) and captured.steps.dtype == np.int32
    np.testing.assert_array_equal(captured.steps, taken)
    np.testing.assert_allclose(captured.remainder, remainder, atol=2e-5)


@pytest.mark.slow
def test_both_sides_of_an_encoder_decoder_have_a_path():
    whole = models.universal_transformer(23, 5, 2, 6, 11, depth="act", halting_bias=-1.0)
    oracles.scramble(whole, scale=0.5)
    source, target = np.array([[5, 7, 9, 0], [3, 4, 0, 0]]), np.array([[2, 6, 8], [2, 9, 0]])
    inputs = {"source_ids": source, "target_ids": target}
    with capture_halting(whole) as halting, capture_attention(whole) as scores:
        whole(inputs)
    assert list(halting) == ["encoder", "decoder"]
    for (steps, remainder), ids in zip(halting.values(), (source, target), strict=True):
        np.testing.assert_array_equal(steps > 0, ids != 0)
        np.testing.assert_array_equal(remainder > 0, ids != 0)
    assert len(scores["encoder/blocks/0/attention"]) == halting["encoder"].steps.max()
    figure = plot_halting(halting, ["a", "b", "c", "<pad>"], layers="encoder")
    drawn = [bar.get_height() for bar in figure.axes[0].containers[0]]
    assert drawn == halting["encoder"].steps[0].tolist()


@pytest.mark.slow
def test_an_rnn_is_captured_and_a_run_more_gives_a_list():
    layer = ACTRNN(ACTCell(keras.layers.SimpleRNNCell(7), 3, halting_bias=-1.0))
    x = oracles.random(B, 3, D)
    _, expected = layer(x, return_halting=True)
    with capture_halting(layer) as halting:
        layer(x)
        layer(x)
    (runs,) = halting.values()
    assert len(runs) == 2
    for captured, of_call in zip(runs[0], expected, strict=True):
        np.testing.assert_array_equal(captured, of_call)
    layer(x)
    assert len(runs) == 2


@pytest.mark.parametrize("other", [Recurrent(built().block, 2), keras.layers.Dense(3), None])
def test_a_model_without_halting_is_refused(other):
    with pytest.raises(ValueError, match="`model` must hold a `keras_attn.depth.ACT` or `ACTRNN`"):
        with capture_halting(other):
            pass


def heights(axes):
    return [[bar.get_height() for bar in bars] for bars in axes.containers]


def test_bars_are_steps_and_remainders_of_the_row():
    steps, remainder = np.array([[1, 4, 0], [2, 3, 5]]), np.array([[0.5, 0.2, 0], [1, 0.1, 0.3]])
    by_layer = {"a": Halting(steps, remainder), "b": [steps, steps[:, ::-1]]}
    figure = plot_halting(by_layer, ["I", "see", "שלום"], row=1)
    panels = figure.axes
    np.testing.assert_allclose(heights(panels[0]), [[2, 3, 5], [1, 0.1, 0.3]])
    assert [bar.get_y() for bar in panels[0].containers[1]] == [2, 3, 5]
    assert [heights(axes) for axes in panels[1:]] == [[[2, 3, 5]], [[5, 3, 2]]]
    titles = [axes.get_title("left") for axes in panels]
    assert titles == ["a: mean N 3.33", "b, step 1: mean N 3.33", "b, step 2: mean N 3.33"]
    names = [label.get_text() for label in panels[-1].get_xticklabels()]
    assert names == ["I", "see", "שלום"]


def test_padding_is_in_no_mean_and_cells_have_a_panel_each():
    steps = np.array([[[2, 4, 0], [1, 1, 0]]])
    figure = plot_halting(Halting(steps, steps * 0.25), ["a", "b", "_"])
    titles = [axes.get_title("left") for axes in figure.axes]
    assert titles == ["cell 1: mean N 3.00", "cell 2: mean N 1.00"]
    assert heights(figure.axes[0])[0] == [2, 4, 0]


@pytest.mark.parametrize(
    "halting, arguments, message",
    [
        ({}, {}, "`halting` must hold at least one layer: .*`capture_halting`"),
        (np.ones(T), {"tokens": TOKENS[1:]}, f"`tokens` .* {T} positions of the steps.*4 tokens"),
        ({"e": np.ones((B, T))}, {"row": 3}, "a row of the batch, below 3. Received: row=3"),
        ({"e": np.ones((B, T))}, {"layers": "d"}, "`halting`, which has e. Received: layers='d'"),
        (np.full(T, np.nan), {}, "`halting` must be steps of.*5 of them NaN"),
        (-np.ones(T), {}, "`halting` must be steps of .* from -1.0 to -1.0"),
        ({"steps": np.ones(T), "remainders": np.full(T, 0.4)}, {}, "as `keras_attn.depth.Halting"),
        (np.full(T, np.inf), {}, "`halting` must be steps of .* from inf to inf"),
        (np.full(T, 1.5), {}, "`halting` must be steps of .* from 1.5 to 1.5"),
        (np.ones((1, 0)), {"tokens": []}, "of at least one token"),
        (np.full(T, "a"), {}, "of at least one token.* dtype <U1"),
        (Halting(np.ones(T), np.full(T, 2.0)), {}, "remainders in .0, 1.*from 2.0 to 2.0"),
        (Halting(np.ones(T), np.ones(T + 1)), {}, "of the same shape"),
        (np.ones((1, 1, 1, T)), {}, "`halting` must be steps, .*(1, 1, 1, 5)"),
        (np.ones(T), {"tokens": None}, "`tokens` must be a list of strings"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(halting, arguments, message):
    with pytest.raises(ValueError, match=message):
        plot_halting(halting, **{"tokens": TOKENS, **arguments})
