import math

import numpy as np
import oracles
import pytest
import tensorflow as tf
from decoding import check_pieces
from distance_scores import KEY, PLANS, QUERY, B, H, N, S, T, check_in_tiles, check_positions
from marks import slow

from keras_attn.attention.inputs import PositionRange
from keras_attn.backend.loop_invariants import loop_invariants
from keras_attn.layers import MultiHeadAttention
from keras_attn.memory import KVCache
from keras_attn.patterns import Local
from keras_attn.scores import Relative


def built(*arguments, **keywords):
    layer = Relative(*arguments, **keywords)
    layer.build(QUERY.shape, KEY.shape)
    oracles.scramble(layer)
    return layer


def formula(layer, query, key, i, j):
    """(B, N, T, S) for positions (B, T) and (B, S), pair by pair."""
    u, v, kernel = (oracles.numpy_of(w) for w in layer.weights)
    logits = np.zeros((*query.shape[:3], key.shape[2]))
    for b, n, t, s in np.ndindex(logits.shape):
        distance = i[b, t] - j[b, s]
        if layer.clamp_length is not None:
            distance = max(min(distance, layer.clamp_length), -layer.clamp_length)
        r = oracles.sinusoids(distance, kernel.shape[0], "concat") @ kernel[:, n]
        content = (query[b, n, t] + u[n]) @ key[b, n, s]
        logits[b, n, t, s] = (content + (query[b, n, t] + v[n]) @ r) / math.sqrt(query.shape[-1])
    return logits


@pytest.mark.parametrize("arguments", [slow({}), {"clamp_length": 2, "hidden_dim": 5}])
def test_oracle(arguments):
    """All pairs, keys before and after their query; also positions of each row and in disorder."""
    layer = built(**arguments)
    width = arguments.get("hidden_dim", N * H)
    assert [w.shape for w in layer.weights] == [(N, H), (N, H), (width, N, H)]
    check_positions(layer, formula, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("pattern, clamp_length", [(PLANS[2], 3), (PLANS[4], None)])
def test_in_tiles(pattern, clamp_length):
    """Every plan gives what the formula over the whole matrix does, gradients of weights too."""
    check_in_tiles(built(clamp_length=clamp_length), formula, pattern, atol=5e-5)


def test_step_by_step_equals_the_full_pass():
    layer = MultiHeadAttention(N, H, score="relative", pattern=Local(4), use_bias=False)
    x = oracles.random(B, 9, 8)
    layer.build(x.shape)
    oracles.scramble(layer)
    check_pieces(layer, x, (4, 5, 8, 9), 9)


@pytest.mark.slow
def test_a_loop_computes_its_table_once(monkeypatch):
    """The first step makes a table for every place in the cache; later ones only look at it."""
    layer = MultiHeadAttention(N, H, score="relative", pattern="causal")
    x = oracles.random(B, 6, 8)
    layer.build(x.shape)
    oracles.scramble(layer)
    full, tables = layer(x, x), []
    make = layer.score.distance_table
    monkeypatch.setattr(layer.score, "distance_table", lambda d: tables.append(d) or make(d))

    @tf.function
    def decode(x):
        with loop_invariants():
            cache = KVCache(6).initial(layer, B)
            output, cache = layer(x[:, :3], x[:, :3], cache=cache)
            outputs = tf.TensorArray("float32", 3)
            for t in tf.range(3):
                step = x[:, 3 + t][:, None]
                new, cache = layer(step, step, cache=cache)
                outputs = outputs.write(t, new[:, 0])
            return tf.concat([output, tf.transpose(outputs.stack(), (1, 0, 2))], axis=1)

    np.testing.assert_allclose(decode(tf.constant(x)), full, atol=1e-5)
    assert len(tables) == 1


def test_half_precision_far_away():
    """A sinusoid of distance 4095 in bfloat16 would be that of another distance."""
    exact, half, atol = built(), built(dtype="mixed_bfloat16"), 0.1
    for start in (10, 1000, 4095):
        places = {"query_positions": PositionRange(start, T), "key_positions": PositionRange(0, S)}
        wanted = exact(QUERY, KEY, **places)
        np.testing.assert_allclose(oracles.numpy_of(half(QUERY, KEY, **places)), wanted, atol=atol)
        places = {name: np.asarray(p.tensor()) for name, p in places.items()}
        np.testing.assert_allclose(oracles.numpy_of(half(QUERY, KEY, **places)), wanted, atol=atol)


@pytest.mark.parametrize("name, value", [("hidden_dim", 0), ("clamp_length", 1.5)])
def test_errors(name, value):
    with pytest.raises(ValueError, match=f"`{name}`.*{name}={value}"):
        Relative(**{name: value})
