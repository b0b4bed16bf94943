"""Perplexity and accuracy over batches of different amounts of padding."""

import keras
import numpy as np
import pytest

from keras_attn.losses import LabelSmoothedCrossentropy
from keras_attn.metrics import BitsPerCharacter, BitsPerDim, Perplexity, TokenAccuracy

V = 11


def batches():
    rng = np.random.default_rng(0)
    for length, real in [(3, 1), (8, 8), (5, 2)]:
        labels = rng.integers(1, V, (2, length))
        labels[:, real:] = 0
        yield labels, rng.normal(scale=2.0, size=(2, length, V)).astype("float32")


def tokens():
    for labels, logits in batches():
        for index in np.ndindex(labels.shape):
            if labels[index] != 0:
                yield labels[index], logits[index].astype("float64")


def test_perplexity_is_that_of_all_tokens_at_once():
    metric = Perplexity()
    for labels, logits in batches():
        metric.update_state(labels, logits)
    losses = [np.log(np.exp(row).sum()) - row[label] for label, row in tokens()]
    assert len(losses) == 22
    np.testing.assert_allclose(float(metric.result()), np.exp(np.mean(losses)), rtol=1e-5)


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


@pytest.mark.parametrize("make", [Perplexity, TokenAccuracy])
def test_padding_does_not_count(make):
    labels, logits = list(batches())[2]
    metric, longer = make(), make()
    metric.update_state(labels[:, :2], logits[:, :2])
    longer.update_state(labels, logits)
    assert float(metric.result()) == pytest.approx(float(longer.result()), rel=1e-6)


@pytest.mark.parametrize("make", [Perplexity, TokenAccuracy])
def test_sample_weight_counts_a_row_so_many_times(make):
    labels, logits = list(batches())[1]
    weighted, repeated = make(), make()
    weighted.update_state(labels, logits, sample_weight=np.array([3.0, 1.0]))
    repeated.update_state(labels[[0, 0, 0, 1]], logits[[0, 0, 0, 1]])
    assert float(weighted.result()) == pytest.approx(float(repeated.result()), rel=1e-5)


def test_uniform_guess_hesitates_between_all_words():
    metric = Perplexity(ignore_class=-100)
    metric.update_state(np.array([[1, -100, 0]]), np.zeros((1, 3, V)))
    assert float(metric.result()) == pytest.approx(V, rel=1e-5)


@pytest.mark.parametrize("make, empty", [(Perplexity, 1.0), (TokenAccuracy, 0.0)])
def test_no_token_and_reset(make, empty):
    metric = make()
    metric.update_state(np.zeros((1, 3), "int32"), np.ones((1, 3, V)))
    assert float(metric.result()) == empty
    metric.update_state(*list(batches())[0])
    metric.reset_state()
    assert float(metric.result()) == empty


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_low_precision_logits(dtype):
    metric, reference = Perplexity(), Perplexity()
    for labels, logits in batches():
        rounded = keras.ops.cast(logits, dtype)
        metric.update_state(labels, rounded)
        reference.update_state(labels, keras.ops.cast(rounded, "float32"))
    assert float(metric.result()) == pytest.approx(float(reference.result()), rel=1e-6)


@pytest.mark.parametrize(
    "measure",
    [
        LabelSmoothedCrossentropy(0.0),
        Perplexity().update_state,
        BitsPerCharacter().update_state,
        BitsPerDim().update_state,
        TokenAccuracy().update_state,
    ],
)
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_one_hot_labels_are_refused(measure, dtype):
    one_hot = np.eye(V, dtype=dtype)[[[1, 2, 3]]]
    with pytest.raises(ValueError, match=rf"`y_true`.*\(1, 3, {V}\)"):
        measure(one_hot, 10.0 * np.eye(V)[[[1, 2, 3]]])


@pytest.mark.parametrize("make", [Perplexity, TokenAccuracy])
def test_config_round_trip(make):
    metric = make(ignore_class=5, name="mine")
    config = keras.saving.serialize_keras_object(metric)
    again = keras.saving.deserialize_keras_object(config)
    assert (again.ignore_class, again.name) == (5, "mine")


def test_saved_with_a_compiled_model(tmp_path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Embedding(V, V)])
    model.compile(
        "adam",
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[Perplexity(), TokenAccuracy()],
    )
    x = np.random.default_rng(0).integers(1, V, (8, 4))
    expected = model.evaluate(x, x, verbose=0, return_dict=True)
    assert expected["perplexity"] == pytest.approx(np.exp(expected["loss"]), rel=1e-4)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.evaluate(x, x, verbose=0, return_dict=True) == pytest.approx(expected)
