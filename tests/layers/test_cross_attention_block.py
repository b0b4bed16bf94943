import numpy as np
import oracles
import pytest
from marks import slow

from keras_attn.layers import CrossAttentionBlock, FeedForward, MultiHeadAttention
from keras_attn.patterns import Local

QUERY, CONTEXT = oracles.random(2, 3, 6), oracles.random(2, 5, 7)
REAL = np.array([[True] * 5, [True, True, False, False, False]])


def built(**arguments):
    block = CrossAttentionBlock(MultiHeadAttention(3, 4), FeedForward(11), **arguments)
    block.build(QUERY.shape, CONTEXT.shape)
    oracles.scramble(block, scale=0.5)
    return block


@pytest.mark.parametrize("adds_query, normalizes_context", [(True, False), slow(False, True)])
def test_output_equals_the_formula(adds_query, normalizes_context):
    block = built(adds_query=adds_query, normalizes_context=normalizes_context)

    def norm(layer, x):
        return oracles.layer_norm(x, *oracles.norm_weights(layer), layer.epsilon)

    context = norm(block.context_norm, CONTEXT) if normalizes_context else CONTEXT
    weights = oracles.attention_weights(block.attention)
    query = norm(block.attention_residual.norm, QUERY)
    x, _ = oracles.attention(query, context, weights, REAL[:, None, None])
    x = x + QUERY if adds_query else x
    weights = map(oracles.numpy_of, block.feed_forward.weights)
    weights = dict(zip(("w1", "b1", "w2", "b2"), weights, strict=True))
    x = x + oracles.feed_forward(norm(block.feed_forward_residual.norm, x), weights)
    np.testing.assert_allclose(block(QUERY, CONTEXT, context_mask=REAL), x, atol=1e-5)


def test_a_score_of_distances_is_refused():
    attention = MultiHeadAttention(3, 4, score="relative")
    with pytest.raises(ValueError, match=r"`attention` attends to another.*score=Relative\(\)"):
        CrossAttentionBlock(attention, FeedForward(11))
    for arguments in ({"position": "rotary"}, {"pattern": Local(3)}):
        (axis,) = arguments
        with pytest.raises(ValueError, match=rf"`attention` attends to another.*{axis}="):
            CrossAttentionBlock(MultiHeadAttention(3, 4, **arguments), FeedForward(11))


def test_sublayers_in_the_wrong_order_are_refused():
    with pytest.raises(ValueError, match="the order is `CrossAttentionBlock"):
        CrossAttentionBlock(FeedForward(11), MultiHeadAttention(3, 4))
