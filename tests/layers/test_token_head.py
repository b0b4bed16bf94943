import keras
import numpy as np
import oracles
import pytest

from keras_attn.layers import TokenEmbedding, TokenHead

B, T, D, V = 2, 3, 7, 13
X = oracles.random(B, T, D)


def built(**arguments):
    head = TokenHead(TokenEmbedding(V, D), **arguments)
    head.build(X.shape)
    oracles.scramble(head)
    return head


def test_output_equals_the_formula():
    head = built()
    expected = X @ oracles.numpy_of(head.embedding.table).T + oracles.numpy_of(head.bias)
    np.testing.assert_allclose(head(X), expected, atol=1e-5)
    assert head.count_params() == V + V * D


def test_logits_are_float32_in_half_precision():
    keras.config.set_dtype_policy("mixed_float16")
    logits = built()(X)
    keras.config.set_dtype_policy("float32")
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    np.testing.assert_allclose(logits, built()(X), atol=0.05)


@pytest.mark.parametrize("embedding", [None, "table"])
def test_invalid_arguments_raise(embedding):
    with pytest.raises(ValueError, match="`embedding`.*Received: embedding="):
        TokenHead(embedding)
