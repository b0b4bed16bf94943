"""Graphs that exports trace have operations that converters know, and convert to equal files."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter
from marks import slow

from keras_attn import layers, patterns
from keras_attn.attention.inputs import TileSizes
from keras_attn.backend.loops import without_tile_loops
from keras_attn.depth import Stack
from keras_attn.export.checks import length_beyond_windows

onnxruntime = pytest.importorskip("onnxruntime")

LENGTHS = 5, 40, 130
HIDDEN_DIM = 10
PATTERNS = {
    "Local": patterns.Local(7),
    "Strided": patterns.Strided(5),
    "Fixed": patterns.Fixed(8, 2),
    "Sinks": patterns.Sinks(2, 7),
    "Either": patterns.Local(7, causal=False) | patterns.Global(2),
    "Random": patterns.Random(8, 1, 160, causal=True),
    "AdaptiveSpan": patterns.AdaptiveSpan(16, ramp=4),
}
# `TensorList*` are the loops over tiles, `StridedSlice` those with a new axis.
UNKNOWN = re.compile("TensorList|Case|Bitwise|Random|Erfc|While")


def model_of(*chosen):
    """Return a model that reads padded ids, with a layer of each pattern, in many small tiles."""
    blocks = []
    for pattern in chosen:
        # Of heads so small that no window has fewer keys: graphs have loops.
        attention = layers.MultiHeadAttention(2, 2, pattern=pattern, position="rotary")
        attention.tile_sizes = TileSizes(chunk_scores=1, block_scores=100)
        feed_forward = layers.FeedForward(11, "gelu", chunks=3)
        blocks.append(layers.TransformerBlock(attention, feed_forward))
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(13, HIDDEN_DIM, mask_zero=True)(ids)
    return keras.Model(ids, Stack(blocks)(x))


def examples():
    for length in LENGTHS:
        ids = np.random.default_rng(length).integers(1, 13, (3, length)).astype("int32")
        ids[1, length - length // 3 :] = 0
        yield ids


def graph_of(model):
    call = tf.function(lambda ids: {"y": model(ids)}, autograph=False)
    return call.get_concrete_function(tf.TensorSpec([None, None], tf.int32, "ids"))


def operations(graph):
    """Yield type and attributes of all operations of a graph, and of its functions."""
    definition = graph.as_graph_def()
    functions = [node for each in definition.library.function for node in each.node_def]
    for node in (*definition.node, *functions):
        yield node.op, node.attr


@pytest.mark.parametrize("names", [("Strided", "AdaptiveSpan"), slow(tuple(PATTERNS))])
def test_graphs_without_tile_loops_have_known_operations_only(names):
    with without_tile_loops():
        graph = graph_of(model_of(*(PATTERNS[name] for name in names))).graph
    found = set()
    for kind, attributes in operations(graph):
        adds_axes = kind == "StridedSlice" and attributes["new_axis_mask"].i
        if UNKNOWN.search(kind) or adds_axes:
            found.add(kind)
    assert found == set()
    assert sum(kind == "Softmax" for kind, _ in operations(graph)) >= len(names)


@pytest.mark.slow
def test_all_tiles_at_once_are_right_in_litert():
    model = model_of(*PATTERNS.values())
    with without_tile_loops():
        function = graph_of(model)
    module = tf.Module()
    module.values = [weight.value for weight in model.weights]
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], module)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    runner = Interpreter(model_content=converter.convert()).get_signature_runner()
    for ids in examples():
        np.testing.assert_allclose(runner(ids=ids)["y"], model(ids), atol=2e-5)


@pytest.mark.slow
def test_loops_over_tiles_are_right_in_onnx_files_of_keras(tmp_path):
    """tf2onnx's optimiser damages reshapes that stand in the place of transposes."""
    model = model_of(PATTERNS["Strided"], PATTERNS["Sinks"])
    model(next(examples()))  # Keras exports no model that was never called
    model.export(tmp_path / "model.onnx", format="onnx", verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (name,) = [x.name for x in session.get_inputs()]
    for ids in examples():
        (y,) = session.run(None, {name: ids})
        np.testing.assert_allclose(y, model(ids), atol=2e-5)


@pytest.mark.parametrize("window, is_one_tile", [(2, True), (3, False)])
def test_a_graph_for_any_length_has_one_tile_for_narrow_windows_outside_training(
    window, is_one_tile
):
    """A block of a window has twice as many keys, and a vector of a head has five entries."""
    layer = layers.MultiHeadAttention(2, 5, pattern=patterns.Local(window))
    layer.build((None, None, HIDDEN_DIM), (None, None, HIDDEN_DIM))

    def has_loop(training):
        call = tf.function(lambda x: layer(x, x, training=training), autograph=False)
        graph = call.get_concrete_function(tf.TensorSpec([None, None, HIDDEN_DIM])).graph
        return any("While" in kind for kind, _ in operations(graph))

    assert has_loop(True)
    assert has_loop(None) == has_loop(False) == (not is_one_tile)


@pytest.mark.parametrize(
    "pattern, length",
    [(patterns.Local(31), 65), (patterns.Random(4, 1, 37), 37), (patterns.Local(7), 40)],
)
def test_files_are_checked_beyond_windows_at_a_length_that_patterns_take(pattern, length):
    assert length_beyond_windows(model_of(pattern)) == length
