"""Accuracy of whole sequences: against a loop, with weights, and in a file."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attn.metrics import SequenceAccuracy, TokenAccuracy

ROWS = st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3), min_size=1, max_size=5)


def logits(guesses):
    return np.eye(3, dtype="float32")[guesses]


@settings(deadline=None, max_examples=15)
@given(ROWS, st.randoms(), st.sampled_from([0, 1, -100]))
def test_a_sequence_is_right_if_each_real_token_is(labels, random, ignore_class):
    guesses = [[random.choice([y, random.randrange(3)]) for y in row] for row in labels]
    weights = [random.randrange(1, 4) for _ in labels]
    right = counted = 0
    for row, guess, weight in zip(labels, guesses, weights):
        real = [(y, g) for y, g in zip(row, guess) if y != ignore_class]
        if real:
            counted += weight
            right += weight * all(y == g for y, g in real)
    metric = SequenceAccuracy(ignore_class)
    for part in (slice(0, 2), slice(2, None)):  # batches of unequal size
        if labels[part]:
            metric.update_state(
                np.array(labels[part]), logits(guesses[part]), np.array(weights[part])
            )
    assert float(metric.result()) == pytest.approx(right / counted if counted else 0.0)


def test_config_round_trip():
    config = keras.saving.serialize_keras_object(SequenceAccuracy(1, name="exact"))
    metric = keras.saving.deserialize_keras_object(config)
    assert metric.name == "exact"
    metric.update_state(np.array([[2, 1], [2, 2], [1, 1]]), logits([[2, 0], [2, 0], [0, 0]]))
    assert float(metric.result()) == 0.5


def test_labels_of_a_byte_are_compared_with_all_classes():
    scores = np.zeros((1, 1, 300), "float32")
    scores[0, 0, 258] = 1  # 258 is 2 in a byte
    for metric in (SequenceAccuracy(), TokenAccuracy()):
        metric.update_state(np.array([[2]], "uint8"), scores)
        assert float(metric.result()) == 0


@pytest.mark.parametrize("weights", [np.ones((2, 2)), np.ones(3)])
def test_weights_that_are_none_of_sequences_are_refused(weights):
    with pytest.raises(ValueError, match=r"`sample_weight` must have the shape \(2,\)"):
        SequenceAccuracy().update_state(np.array([[1], [2]]), logits([[1], [0]]), weights)
