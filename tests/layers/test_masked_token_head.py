import numpy as np
import oracles
import pytest

from keras_attn.layers import MaskedTokenHead, TokenEmbedding
from keras_attn.norms import LayerNorm

B, T, D, V = 2, 3, 7, 13
X = oracles.random(B, T, D)


def built(width=D, **arguments):
    head = MaskedTokenHead(TokenEmbedding(V, width), **arguments)
    head.build(X.shape)
    oracles.scramble(head)
    return head


@pytest.mark.parametrize("width", [D, 5])
def test_output_equals_the_formula_for_any_width_of_the_table(width):
    head = built(width, norm=LayerNorm(1e-3))
    kernel, bias = map(oracles.numpy_of, head.dense.weights)
    hidden = np.vectorize(oracles.gelu)(X @ kernel + bias)
    hidden = oracles.layer_norm(hidden, *oracles.norm_weights(head.norm), 1e-3)
    expected = hidden @ oracles.numpy_of(head.embedding.table).T + oracles.numpy_of(head.bias)
    np.testing.assert_allclose(head(X), expected, atol=1e-5)


def test_weights_are_the_head_and_the_table():
    head = built()
    assert head.count_params() == D * D + 3 * D + V + V * D
    assert any(w is head.embedding.table for w in head.weights)


@pytest.mark.parametrize("embedding", [None, "table"])
def test_invalid_arguments_raise(embedding):
    with pytest.raises(ValueError, match="`embedding`.*Received: embedding="):
        MaskedTokenHead(embedding)
