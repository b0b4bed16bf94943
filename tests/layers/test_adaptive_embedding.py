import math

import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn.layers import AdaptiveEmbedding, TokenEmbedding

V, D, CUTOFFS, DIV = 23, 13, [5, 11], 2
# Words on both sides of each cut.
IDS = np.array([[4, 5, 0, 22, 10], [11, 1, 12, 3, 0]])


def built(*arguments, **options):
    layer = AdaptiveEmbedding(V, D, *arguments, **options)
    layer.build()
    oracles.scramble(layer)
    return layer


def test_output_equals_the_formula():
    layer = built(CUTOFFS, DIV)
    x = oracles.numpy_of(layer(IDS))
    edges = [0, 5, 11, 23]
    for index in np.ndindex(IDS.shape):
        word = IDS[index]
        cluster = max(i for i in range(3) if edges[i] <= word)
        row = oracles.numpy_of(layer.tables[cluster])[word - edges[cluster]]
        expected = math.sqrt(D) * row @ oracles.numpy_of(layer.projections[cluster])
        np.testing.assert_allclose(x[index], expected, atol=1e-5)


@pytest.mark.slow
def test_div_val_of_one_equals_a_token_embedding():
    layer, plain = built(CUTOFFS), TokenEmbedding(V, D)
    plain.build()
    plain.table.assign(np.concatenate([oracles.numpy_of(table) for table in layer.tables]))
    np.testing.assert_array_equal(layer(IDS), plain(IDS))
    for embedding in (layer, plain):
        for outside in (V, -1):
            with pytest.raises(ValueError, match="token_ids.*vocabulary"):
                embedding(np.array([[1, outside]]))
    in_graphs = [tf.function(embedding) for embedding in (layer, plain)]
    for beyond in (V, -1, -V - 1):
        for graph in in_graphs:
            with pytest.raises(tf.errors.InvalidArgumentError, match="is not in"):
                graph(np.array([[1, beyond]]))
    assert layer.count_params() == V * D


def test_default_tables_give_unit_variance_in_every_cluster():
    layer = AdaptiveEmbedding(900, 64, [300, 600], 4)
    variances = [np.var(layer(np.arange(300)[None] + start)) for start in (0, 300, 600)]
    # Of the last cluster, 64 wide vectors made of 4 numbers each.
    np.testing.assert_allclose(variances, 1.0, atol=0.4)


def test_padding_makes_the_implicit_mask():
    np.testing.assert_array_equal(built(CUTOFFS, DIV)(IDS)._keras_mask, IDS != 0)
    assert getattr(built(CUTOFFS, pad_id=None)(IDS), "_keras_mask", None) is None


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: AdaptiveEmbedding(0, D), "`vocabulary_size`.*vocabulary_size=0"),
        (lambda: AdaptiveEmbedding(V, D, [5, 5]), r"`cutoffs`.*cutoffs=\[5, 5\]"),
        (lambda: AdaptiveEmbedding(V, D, [0, 5]), r"`cutoffs\[0\]`.*=0"),
        (lambda: AdaptiveEmbedding(V, D, 9), "`cutoffs` must be a list.*cutoffs=9"),
        (lambda: AdaptiveEmbedding(V, D, [5, V]), r"`cutoffs`.*vocabulary_size=23"),
        (lambda: AdaptiveEmbedding(V, D, CUTOFFS, 4), "`hidden_dim`.*div_val=4, 2 cutoffs"),
        (lambda: AdaptiveEmbedding(V, D, CUTOFFS, 0), "`div_val`.*div_val=0"),
        (lambda: built(CUTOFFS)(IDS + 0.0), "`token_ids` must be integers.*float"),
    ],
)
def test_invalid_arguments_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call()
