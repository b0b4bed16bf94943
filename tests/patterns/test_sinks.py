"""Sinks equal attention within a cache whose keys are counted from 0."""

import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn.layers import MultiHeadAttention
from keras_attn.memory import KVCache
from keras_attn.patterns import Causal, Global, Local, PerHead, Sinks
from keras_attn.positions import Position, Rotary, YaRN
from keras_attn.scores import DotProduct, T5Bias

B, N, H, D = 2, 3, 4, 5
G, W = 2, 5
T = 10 * W + 3
X = oracles.random(B, T, D)
KINDS = {
    "scaled rotary": lambda: {
        "position": Rotary(20, layout="half", fraction=0.5, scaling=YaRN(4, 16))
    },
    "t5": lambda: {"score": DotProduct() + T5Bias(8, 9), "position": "rotary"},
}


def built(kind, pattern=None, **arguments):
    pattern = Sinks(G, W) if pattern is None else pattern
    layer = MultiHeadAttention(N, H, pattern=pattern, **KINDS[kind](), **arguments)
    layer.build(X.shape, X.shape)
    oracles.scramble(layer)
    return layer


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_oracle_positions_in_the_cache(kind):
    """Plain causal attention over the keys in the cache, whose positions are 0, 1, 2, ..."""
    causal = built(kind, Causal())
    outputs = [np.asarray(built(kind, implementation=way)(X, X)) for way in ("dense", "blockwise")]
    for i in (G, G + W - 1, G + W, T - 1):
        kept = [j for j in range(i + 1) if j < G or j > i - W]
        expected = causal(X[:, kept], X[:, kept])[:, -1]
        for output in outputs:
            np.testing.assert_allclose(output[:, i], expected, atol=2e-5)
    own_distances = np.asarray(built(kind, Local(W) | Global(G, causal=True))(X, X))
    far = np.abs(own_distances - outputs[0])
    assert far[:, : G + W].max() < 2e-5 < far[:, G + W :].max()


@pytest.mark.slow
@pytest.mark.parametrize("kind, slots", [("t5", None), ("scaled rotary", 1000)])
def test_decoding_ten_windows_equals_the_whole_pass(kind, slots):
    layer = built(kind)
    whole, cache, outputs, start = layer(X, X), KVCache(slots).initial(layer, B), [], 0
    count = T if slots else 3 * W
    step = tf.function(lambda x, cache: layer(x, x, cache=cache)) if slots else None
    for length in (3, 9, *[1] * (count - 12)):
        piece = tf.constant(X[:, start : start + length])
        call = step if step and length == 1 else lambda x, cache: layer(x, x, cache=cache)
        output, cache = call(piece, cache)
        outputs.append(output)
        start += length
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), whole[:, :count], atol=2e-5)
    assert cache["key"].shape[2] == (G + W if slots else count)


def test_arguments():
    pattern = Sinks(G, W)
    assert repr(pattern) == "Sinks(2, 5)" and pattern != Sinks(G, W + 1)
    assert pattern.causal and pattern.kept_keys[:2] == (G + W, G)
    for make in (lambda: Sinks(0, 3), lambda: Sinks(3, 0)):
        with pytest.raises(ValueError, match="`(count|window)`.*=0"):
            make()


@pytest.mark.parametrize(
    "combine", [lambda p: p & "causal", lambda p: p | Local(2), lambda p: PerHead([p, Local(2)])]
)
def test_combinations_would_lose_the_distances_and_are_refused(combine):
    with pytest.raises(ValueError, match="function of positions alone, which Sinks is not"):
        combine(Sinks(G, W))


def test_a_position_that_cannot_be_moved_is_refused():
    class Shift(Position):
        acts_on_heads = True

        def call(self, x, positions=None):
            return x + 1.0

    layer = MultiHeadAttention(N, H, pattern=Sinks(G, W), position=Shift())
    with pytest.raises(ValueError, match="Sinks needs a position.*such as `Rotary`"):
        layer(X, X)
