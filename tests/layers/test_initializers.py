"""An initializer object shared by layers, as the models share one, draws new numbers for each."""

import keras
import numpy as np
import pytest

from keras_attn.layers import FeedForward, MultiHeadAttention, SegmentEmbedding, TokenEmbedding
from keras_attn.positions import Learned

D = 6
LAYERS = {
    "attention": lambda normal: MultiHeadAttention(2, 3, kernel_initializer=normal),
    "query and value": lambda normal: MultiHeadAttention(
        2, 3, query_initializer=normal, value_initializer=normal
    ),
    "feed_forward": lambda normal: FeedForward(D, kernel_initializer=normal),
    "segment": lambda normal: SegmentEmbedding(3, embeddings_initializer=normal),
    "tokens": lambda normal: TokenEmbedding(7, D, embeddings_initializer=normal),
    "learned": lambda normal: Learned(7, embeddings_initializer=normal),
}


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_drawn_apart(make):
    normal = keras.initializers.RandomNormal()
    weights = []
    for layer in (make(normal), make(normal)):
        layer.build((None, None, D))
        weights += [w.numpy().ravel() for w in layer.weights if np.ptp(w.numpy()) > 0]
    assert len(weights) >= 2
    for i, first in enumerate(weights):
        for second in weights[:i]:
            assert np.any(first[: len(second)] != second[: len(first)])
