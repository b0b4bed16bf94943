"""Metrics of tokens over batches of different amounts of padding."""

import keras
import numpy as np
import pytest
from token_batches import V, batches, real_tokens, token_bits, updated

from keras_attn.losses import LabelSmoothedCrossentropy, MixtureOfLogistics
from keras_attn.metrics import (
    BitsPerCharacter,
    BitsPerDim,
    Perplexity,
    SequenceAccuracy,
    TokenAccuracy,
)

LIKELIHOODS = [Perplexity, BitsPerCharacter, BitsPerDim]
METRICS = [*LIKELIHOODS, TokenAccuracy]


def bits(metric):
    """The result in bits a token."""
    result = float(metric.result())
    return np.log2(result) if isinstance(metric, Perplexity) else result


@pytest.mark.parametrize("make", LIKELIHOODS)
def test_likelihood_is_that_of_all_tokens_at_once(make):
    _, expected = real_tokens()
    assert len(expected) == 22
    assert bits(updated(make())) == pytest.approx(expected.mean(), rel=1e-5)


def test_accuracy_is_that_of_all_tokens_at_once():
    metric = TokenAccuracy()
    for labels, logits in batches():
        sign = np.where(np.arange(labels.shape[1]) % 2, -100.0, 100.0)
        metric.update_state(labels, logits + sign[:, None] * np.eye(V)[labels])
    # Right at even places only: 1 of 1, 4 of 8 and 1 of 2 real tokens, in two rows each.
    assert float(metric.result()) == pytest.approx(12 / 22)


def test_accuracy_of_a_dead_model_is_not_perfect():
    metric = TokenAccuracy()
    metric.update_state(np.array([[1, 2, 3]]), np.zeros((1, 3, V)))
    assert float(metric.result()) == 0.0


@pytest.mark.parametrize("make", METRICS)
def test_padding_does_not_count(make):
    labels, logits = list(batches())[2]
    metric, longer = make(), make()
    metric.update_state(labels[:, :2], logits[:, :2])
    longer.update_state(labels, logits)
    assert float(metric.result()) == pytest.approx(float(longer.result()), rel=1e-6)


@pytest.mark.parametrize("make", METRICS)
def test_sample_weight_counts_a_row_so_many_times(make):
    labels, logits = list(batches())[1]
    weighted, repeated = make(), make()
    weighted.update_state(labels, logits, sample_weight=np.array([3.0, 1.0]))
    repeated.update_state(labels[[0, 0, 0, 1]], logits[[0, 0, 0, 1]])
    assert float(weighted.result()) == pytest.approx(float(repeated.result()), rel=1e-5)


@pytest.mark.parametrize("make", LIKELIHOODS)
def test_losses_in_place_of_logits(make):
    """As a layer gives them that does not make all logits."""
    metric = make()
    for labels, logits in batches():
        metric.update_state(labels, np.log(2) * token_bits(labels, logits))
    expected = float(updated(make()).result())
    assert float(metric.result()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("make", METRICS)
def test_no_token_and_reset(make):
    metric, empty = make(), 1.0 if make is Perplexity else 0.0
    metric.update_state(np.zeros((1, 3), "int32"), np.ones((1, 3, V)))
    assert float(metric.result()) == empty
    assert float(updated(metric).result()) != empty
    metric.reset_state()
    assert float(metric.result()) == empty


@pytest.mark.parametrize("make", LIKELIHOODS)
def test_low_precision_logits(make):
    metric, reference = make(), make()
    for labels, logits in batches():
        rounded = keras.ops.cast(logits, "bfloat16")
        metric.update_state(labels, rounded)
        reference.update_state(labels, keras.ops.cast(rounded, "float32"))
    assert float(metric.result()) == float(reference.result())


@pytest.mark.parametrize("make", METRICS)
def test_float64_logits(make):
    """Sums are float32 unless the metric has another dtype."""
    for dtype, tolerance in ((None, 1e-5), ("float64", 1e-13)):
        metric, (_, expected) = make(dtype=dtype), real_tokens()
        for labels, logits in batches():
            metric.update_state(labels, logits.astype("float64"))
        assert metric.result().dtype == (dtype or "float32")
        if make is not TokenAccuracy:
            assert bits(metric) == pytest.approx(expected.mean(), rel=tolerance)


MEASURES = [make().update_state for make in (*METRICS, SequenceAccuracy)]


@pytest.mark.parametrize("measure", [LabelSmoothedCrossentropy(0.0), *MEASURES])
def test_one_hot_labels_are_refused(measure):
    one_hot = np.eye(V, dtype="int32")[[[1, 2, 3]]]
    with pytest.raises(ValueError, match=rf"`y_true`.*\(1, 3, {V}\)"):
        measure(one_hot, 10.0 * np.eye(V)[[[1, 2, 3]]])


@pytest.mark.parametrize(
    "metric",
    [
        Perplexity(ignore_class=5, name="mine"),
        TokenAccuracy(ignore_class=5, name="mine"),
        BitsPerCharacter(range(V), ignore_class=5, name="mine"),
        BitsPerDim(MixtureOfLogistics(2, 1), ignore_class=5, name="mine"),
        BitsPerDim(ignore_class=5, name="mine"),
    ],
)
def test_config_round_trip(metric):
    config = keras.saving.serialize_keras_object(metric)
    again = keras.saving.deserialize_keras_object(config)
    assert (type(again), again.ignore_class, again.name) == (type(metric), 5, "mine")
    assert keras.saving.serialize_keras_object(again)["config"] == config["config"]


@pytest.mark.slow
def test_saved_with_a_compiled_model(tmp_path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Embedding(V, V)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    metrics = [
        Perplexity(),
        TokenAccuracy(),
        BitsPerCharacter(range(V), ignore_class=5),
        BitsPerDim(),
    ]
    model.compile("adam", loss, metrics=metrics)
    x = np.random.default_rng(0).integers(1, V, (8, 4))
    expected = model.evaluate(x, x, verbose=0, return_dict=True)
    assert expected["perplexity"] == pytest.approx(np.exp(expected["loss"]), rel=1e-4)
    assert expected["bits_per_dim"] == pytest.approx(expected["loss"] / np.log(2), rel=1e-4)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.evaluate(x, x, verbose=0, return_dict=True) == pytest.approx(expected)
