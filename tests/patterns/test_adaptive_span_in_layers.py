"""`AdaptiveSpan` in a layer: its losses, its constraint, caches, files and dtypes."""

import keras
import numpy as np
import oracles
import pytest

from keras_attn.attention.inputs import TileSizes
from keras_attn.layers import MultiHeadAttention
from keras_attn.memory import KVCache
from keras_attn.patterns import AdaptiveSpan
from keras_attn.scores import LearnedRelative

B, N, H, D = 2, 3, 4, 8
MAX_SPAN, RAMP = 24, 4


def layer_of(pattern, **keywords):
    layer = MultiHeadAttention(N, H, pattern=pattern, **keywords)
    layer.tile_sizes = TileSizes(least_window=6, most_block=4)
    layer.build((None, None, D))
    return layer


def test_scores_of_a_layer_sum_to_one():
    span = AdaptiveSpan(MAX_SPAN, RAMP, 0.2, include_self=False)
    layer = layer_of(span, implementation="blockwise")
    x = oracles.random(B, 31, D)
    output, scores = layer(x, x, return_attention_scores=True)
    sums = np.sum(scores, axis=-1)
    np.testing.assert_array_equal(sums[:, :, 0], 0)
    np.testing.assert_allclose(sums[:, :, 1:], 1, atol=1e-5)
    np.testing.assert_array_equal(output, layer(x, x))


def test_loss_of_static_spans():
    """Also of a call that shows its scores."""
    layer = layer_of(AdaptiveSpan(MAX_SPAN, RAMP, span_loss=0.01), implementation="blockwise")
    layer.pattern.span.assign([0.0, 0.5, 0.1])
    x = oracles.random(B, 5, D)
    layer(x, x, return_attention_scores=True)
    expected = 0.01 * MAX_SPAN * (0.0 + 0.5 + 0.1) / 3
    np.testing.assert_allclose(sum(layer.losses), expected, rtol=1e-6)


def test_loss_of_dynamic_spans():
    """The mean over heads and those positions that are not padding."""
    span = AdaptiveSpan(MAX_SPAN, RAMP, span_loss=0.01, dynamic=True)
    layer = layer_of(span, implementation="dense")
    oracles.scramble(layer)
    x, real = oracles.random(B, 9, D), np.ones((B, 9), bool)
    real[1, 4:] = False
    layer(x, x, value_mask=real, return_attention_scores=True)
    kernel, bias = (oracles.numpy_of(w) for w in layer.pattern.weights)
    spans = MAX_SPAN / (1 + np.exp(-(x @ kernel + bias)))  # (B, T, N)
    expected = 0.01 * np.mean(spans[real])
    assert len(layer.losses) == 1
    np.testing.assert_allclose(layer.losses[0], expected, rtol=1e-5)
    layer(x, x)
    np.testing.assert_allclose(layer.losses[0], 0.01 * spans.mean(), rtol=1e-5)


def test_weight_decay_can_leave_out_the_spans():
    layer = layer_of(AdaptiveSpan(MAX_SPAN, RAMP, dynamic=True))
    weights = layer.trainable_weights
    for weight in weights:
        weight.assign(np.full(weight.shape, 0.5))
    optimizer = keras.optimizers.SGD(1.0, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["span"])
    optimizer.apply([np.zeros(w.shape, "float32") for w in weights], weights)
    kept = {w.path for w in weights if np.all(w.numpy() == 0.5)}
    assert kept == {w.path for w in layer.pattern.trainable_weights} != set()


def test_spans_stay_inside_after_a_step():
    """However far an optimizer goes, downwards and upwards."""
    pattern = AdaptiveSpan(MAX_SPAN, RAMP, 0.5)
    layer_of(pattern)
    optimizer = keras.optimizers.SGD(1.0)
    for gradient, end in ((1e6, 0.0), (-1e6, 1.0)):
        optimizer.apply([np.full(N, gradient, "float32")], [pattern.span])
        np.testing.assert_array_equal(pattern.span, [end] * N)


@pytest.mark.slow
def test_step_by_step_equals_the_full_pass():
    pattern = AdaptiveSpan(7, 3, 0.3, dynamic=True, include_self=False)
    layer = layer_of(pattern, score=LearnedRelative(8))
    x = oracles.random(B, 12, D)
    full = layer(x, x)
    cache, outputs = KVCache(12).initial(layer, B), []
    for part in (slice(0, 3), slice(3, 4), slice(4, 11), slice(11, 12)):
        output, cache = layer(x[:, part], x[:, part], cache=cache)
        outputs.append(output)
    np.testing.assert_allclose(np.concatenate(outputs, axis=1), full, atol=1e-5)


def test_half_precision():
    """Spans, and so the ramp, are float32: at 4000 bfloat16 knows multiples of 16 only."""
    pattern = AdaptiveSpan(4096, 32, 0.99, dynamic=True)
    layer = layer_of(pattern, implementation="dense", dtype="mixed_bfloat16")
    assert {w.dtype for w in pattern.weights} == {"float32"}
    exact = layer_of(AdaptiveSpan(4096, 32, 0.99, dynamic=True), implementation="dense")
    exact.set_weights(layer.get_weights())
    x = oracles.random(1, 40, D)
    np.testing.assert_allclose(oracles.numpy_of(layer(x, x)), exact(x, x), atol=0.05)
