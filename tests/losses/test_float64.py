"""Losses of float64 logits are float64, and exact beyond float32."""

import numpy as np
import pytest
import tensorflow as tf

from keras_attn.losses import LabelSmoothedCrossentropy, MixtureOfLogistics

B, T, V = 2, 5, 7
RANDOM = np.random.default_rng(0)
LABELS, WEIGHTS = RANDOM.integers(0, V, (B, T)), RANDOM.random((B, T))
LOSSES = {
    "crossentropy": LabelSmoothedCrossentropy(0.1),
    "weighted mean": LabelSmoothedCrossentropy(0.0, reduction="mean_with_sample_weight"),
    "losses of tokens": LabelSmoothedCrossentropy(0.0),
    "mixture": MixtureOfLogistics(3, 1, V),
}


@pytest.mark.parametrize("case", LOSSES)
def test_the_slope_of_a_float64_loss_is_exact(case):
    """A difference over 2e-5 has some ten digits in float64, and two in float32."""
    loss, labels, shape = LOSSES[case], LABELS, (B, T, V)
    if case == "losses of tokens":
        shape = (B, T)
    if case == "mixture":
        labels, shape = LABELS[..., None], (B, T, loss.num_parameters)
    predictions, direction = RANDOM.normal(size=shape), RANDOM.normal(size=shape)
    x = tf.constant(predictions)
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = loss(labels, x, WEIGHTS)
    gradient = tape.gradient(value, x)
    assert value.dtype == gradient.dtype == "float64"
    ahead, behind = (
        loss(labels, predictions + step * direction, WEIGHTS) for step in (1e-5, -1e-5)
    )
    slope = float(ahead - behind) / 2e-5
    assert slope == pytest.approx(np.sum(gradient * direction), rel=1e-7)


def test_crossentropy_equals_the_formula_to_the_last_digits():
    logits = RANDOM.normal(size=(B, T, V))
    log_softmax = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    losses = -(0.9 * np.eye(V)[LABELS] + 0.1 / V) * log_softmax
    expected = (losses.sum(-1) * WEIGHTS)[LABELS != 0].sum() / np.sum(LABELS != 0)
    loss = LabelSmoothedCrossentropy(0.1)(LABELS, logits, WEIGHTS)
    assert float(loss) == pytest.approx(expected, rel=1e-14)
