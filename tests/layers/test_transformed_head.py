"""`HeadTransform` and `TransformedHead` against their formulas."""

import keras
import numpy as np
import oracles
import pytest

from keras_attn.layers import HeadTransform, TransformedHead
from keras_attn.norms import LayerNorm

X = oracles.random(2, 5, 7)


def test_states_are_transformed_before_the_head():
    head = TransformedHead(HeadTransform(11, "relu", LayerNorm(1e-3)), keras.layers.Dense(3))
    head.build(X.shape)
    oracles.scramble(head)
    transform = head.transform
    kernel, bias = map(oracles.numpy_of, transform.dense.weights)
    norm = oracles.norm_weights(transform.norm)
    hidden = oracles.layer_norm(np.maximum(X @ kernel + bias, 0), *norm, 1e-3)
    kernel, bias = map(oracles.numpy_of, head.head.weights)
    np.testing.assert_allclose(head(X), hidden @ kernel + bias, atol=1e-5)
    assert head.units == 3


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda: HeadTransform(0), "`hidden_dim`.*=0"),
        (lambda: TransformedHead(None, keras.layers.Dense(3)), "`transform`.*=None"),
        (lambda: TransformedHead(HeadTransform(3), HeadTransform(3)), "`head`.*a dense layer"),
    ],
)
def test_invalid_arguments_raise(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
