"""Ids outside a table or a vocabulary: refused eagerly and in graphs, never wrapped."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from marks import slow_but

from keras_attn.layers import (
    AdaptiveEmbedding,
    AdaptiveSoftmax,
    PixelEmbedding,
    SegmentEmbedding,
    TokenEmbedding,
    TrajectoryEmbedding,
)
from keras_attn.losses import LabelSmoothedCrossentropy
from keras_attn.metrics import Perplexity, TokenAccuracy
from keras_attn.models import CausalLanguageModel
from keras_attn.ops.ids import narrow
from keras_attn.positions import Axial, ImageCoordinates, Learned

V, D = 11, 6
X, INNER = np.ones((1, 2, D), "float32"), np.ones((1, 2, 3), "float32")
WRAPS = 2**32 + 5  # 5 in its last 32 bits

adaptive = AdaptiveEmbedding(V, D, cutoffs=[3, 7], div_val=2)
adaptive.build()
trajectory = TrajectoryEmbedding(V, D, max_steps=V, discrete=True)
# By kind of reader: a function of ids (1, 2) in [0, V).
READERS = {
    "tokens": TokenEmbedding(V, D),
    "clusters": adaptive,
    "segments": lambda ids, layer=SegmentEmbedding(V): layer(X, ids),
    "pixels": PixelEmbedding(3, 2, D),
    "actions": lambda ids: trajectory(X[..., 0], INNER, ids),
    "steps": lambda ids: trajectory(X[..., 0], INNER, np.ones((1, 2), "int32"), ids),
    "labels": lambda ids: LabelSmoothedCrossentropy()(ids, np.ones((1, 2, V))),
    "labels of clusters": lambda ids, layer=AdaptiveSoftmax(adaptive): layer(X, ids),
}
TABLES = {
    "learned": Learned(V),
    "axial": Axial((1, V), (2, 4)),
    "image": ImageCoordinates(V, 1, 1),
}


@pytest.mark.parametrize("name", slow_but(["tokens", "pixels"], READERS))
def test_ids_outside_the_vocabulary_are_errors(name):
    read = READERS[name]
    inside = np.array([[3, 5]])
    np.testing.assert_array_equal(read(inside), read(inside.astype("uint8")))
    graph = tf.function(read, [tf.TensorSpec((1, 2), tf.int64)], autograph=False)
    np.testing.assert_allclose(graph(inside), read(inside), rtol=1e-5)
    for outside in (-1, WRAPS, 12):
        with pytest.raises(ValueError, match=r"must be ids of the vocabulary, in \[0, 11\)"):
            read(np.array([[3, outside]]))
        with pytest.raises(tf.errors.InvalidArgumentError):
            graph(tf.constant([[3, outside]], tf.int64))


@pytest.mark.parametrize("name", slow_but(["learned"], TABLES))
def test_positions_outside_a_table_are_errors(name):
    layer = TABLES[name]
    graph = tf.function(layer, [tf.TensorSpec((1, 2, D)), tf.TensorSpec((2,), tf.int64)])
    np.testing.assert_array_equal(graph(X, [3, 5]), layer(X, np.array([3, 5])))
    for outside in (-1, WRAPS, 12):
        for read in (layer, graph):
            with pytest.raises(tf.errors.InvalidArgumentError):
                read(X, np.array([3, outside]))


def test_a_metric_counts_no_label_that_would_wrap():
    logits = np.log(np.eye(V)[[[5, 5]]] + 0.1)
    metric = TokenAccuracy()
    metric.update_state(np.array([[5, WRAPS]]), logits)
    assert float(metric.result()) == 0.5
    with pytest.raises(ValueError, match="`y_true` must be ids"):
        Perplexity().update_state(np.array([[5, WRAPS]]), logits)


def test_a_model_refuses_ids_before_keras_casts_them():
    """As arrays, tensors and lists, and in the graph of `predict`."""
    identity = keras.layers.Identity(name="depth")
    model = CausalLanguageModel(TokenEmbedding(V, D), identity)
    ids = np.array([[3, WRAPS]])
    for inputs in (ids, tf.constant(ids), {"token_ids": ids.tolist()}):
        with pytest.raises(ValueError, match="`token_ids` must be ids"):
            model(inputs)
    with pytest.raises(tf.errors.InvalidArgumentError):
        model.predict(ids, verbose=0)
    assert model(keras.Input((None,), dtype="int64")).shape == (None, None, V)


@pytest.mark.parametrize("dtype", ["int64", "uint32", "uint64"])
def test_wide_integers_become_the_nearest_int32(dtype):
    numbers = np.array([0, 7, 2**31 - 1, 2**31, 2**32 - 1], dtype)
    expected = [0, 7, 2**31 - 1, 2**31 - 1, 2**31 - 1]
    for x in (numbers, tf.constant(numbers)):
        y = narrow(x)
        assert keras.backend.standardize_dtype(y.dtype) == "int32"
        assert np.array(y).tolist() == expected
    assert narrow(np.array([-(2**40), -1])).tolist() == [-(2**31), -1]


def test_other_values_stay_themselves():
    for x in (np.ones(2, "int32"), np.ones(2), tf.constant("a"), [2**40], None):
        assert narrow(x) is x
