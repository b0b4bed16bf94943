"""Bits per character and per dimension over batches of different amounts of padding."""

import keras
import numpy as np
import pytest

from keras_attn.losses import LabelSmoothedCrossentropy, MixtureOfLogistics
from keras_attn.metrics import BitsPerCharacter, BitsPerDim, Perplexity

V = 11
LENGTHS = [2, 1, 1, 0, 2, 3, 1, 5, 4, 2, 7]


def batches():
    rng = np.random.default_rng(0)
    for length, real in [(3, 1), (8, 8), (5, 2)]:
        labels = rng.integers(1, V, (2, length))
        labels[:, real:] = 0
        yield labels, rng.normal(scale=2.0, size=(2, length, V)).astype("float32")


def bits(row, label):
    row = row.astype("float64")
    return (np.log(np.exp(row).sum()) - row[label]) / np.log(2)


def of_tokens():
    """Label and bits of every real token of all batches."""
    for labels, logits in batches():
        for index in np.ndindex(labels.shape):
            if labels[index]:
                yield labels[index], bits(logits[index], labels[index])


def updated(metric, **arguments):
    for labels, logits in batches():
        metric.update_state(labels, logits, **arguments)
    return float(metric.result())


@pytest.mark.parametrize("make", [BitsPerCharacter, BitsPerDim])
def test_the_mean_of_all_tokens_at_once(make):
    expected = np.mean([bits for _, bits in of_tokens()])
    assert updated(make()) == pytest.approx(expected, rel=1e-5)
    assert np.log2(updated(Perplexity())) == pytest.approx(expected, rel=1e-5)


def test_subwords_are_divided_by_their_characters():
    """Id 3 is a mark: its bits count, and it is no character."""
    tokens = list(of_tokens())
    assert any(label == 3 for label, _ in tokens)
    expected = sum(bits for _, bits in tokens) / sum(LENGTHS[label] for label, _ in tokens)
    assert updated(BitsPerCharacter(token_lengths=LENGTHS)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("make", [BitsPerCharacter, BitsPerDim])
def test_losses_in_place_of_logits(make):
    """As a layer gives them that does not make all logits."""
    metric, expected = make(), updated(make())
    for labels, logits in batches():
        losses = [np.log(2) * bits(logits[i], labels[i]) for i in np.ndindex(labels.shape)]
        metric.update_state(labels, np.reshape(losses, labels.shape))
    assert float(metric.result()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("make", [BitsPerCharacter, BitsPerDim])
def test_sample_weight_counts_a_row_so_many_times(make):
    labels, logits = list(batches())[1]
    weighted, repeated = make(), make()
    weighted.update_state(labels, logits, sample_weight=np.array([3.0, 1.0]))
    repeated.update_state(labels[[0, 0, 0, 1]], logits[[0, 0, 0, 1]])
    assert float(weighted.result()) == pytest.approx(float(repeated.result()), rel=1e-5)


def test_a_mixture_is_divided_by_pixels_and_channels():
    likelihood = MixtureOfLogistics(2, 3, 16)
    rng = np.random.default_rng(0)
    metric, nats = BitsPerDim(likelihood), 0.0
    for length in (5, 2):
        values = rng.integers(0, 16, (2, length, 3))
        values[0, 0] = 0  # black, not padding
        parameters = rng.normal(size=(2, length, likelihood.num_parameters))
        metric.update_state(values, parameters)
        nats -= likelihood.log_probability(values, parameters).numpy().sum()
    expected = nats / np.log(2) / (2 * 7 * 3)
    assert float(metric.result()) == pytest.approx(expected, rel=1e-5)
    weighted = BitsPerDim(likelihood)
    weighted.update_state(values, parameters, sample_weight=np.array([1.0, 0.0]))
    alone = BitsPerDim(likelihood)
    alone.update_state(values[:1], parameters[:1])
    assert float(weighted.result()) == pytest.approx(float(alone.result()), rel=1e-6)


@pytest.mark.parametrize("make", [BitsPerCharacter, BitsPerDim])
def test_no_token_ignore_class_and_reset(make):
    metric = make()
    metric.update_state(np.zeros((1, 3), "int32"), np.ones((1, 3, V)))
    assert float(metric.result()) == 0.0
    updated(metric)
    metric.reset_state()
    assert float(metric.result()) == 0.0
    metric = make(ignore_class=-100)
    metric.update_state(np.array([[0, -100, 1]]), np.zeros((1, 3, V)))
    assert float(metric.result()) == pytest.approx(np.log2(V), rel=1e-6)


@pytest.mark.parametrize("make", [BitsPerCharacter, BitsPerDim])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_low_precision_logits(make, dtype):
    metric, reference = make(), make()
    for labels, logits in batches():
        rounded = keras.ops.cast(logits, dtype)
        metric.update_state(labels, rounded)
        reference.update_state(labels, keras.ops.cast(rounded, "float32"))
    assert float(metric.result()) == float(reference.result())


def test_saved_with_a_compiled_model(tmp_path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Embedding(V, V)])
    metrics = [BitsPerCharacter(LENGTHS, ignore_class=5), BitsPerDim()]
    model.compile("adam", LabelSmoothedCrossentropy(0.0), metrics=metrics)
    x = np.random.default_rng(0).integers(1, V, (8, 4))
    expected = model.evaluate(x, x, verbose=0, return_dict=True)
    assert expected["bits_per_dim"] == pytest.approx(expected["loss"] / np.log(2), rel=1e-4)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.evaluate(x, x, verbose=0, return_dict=True) == pytest.approx(expected)


@pytest.mark.parametrize(
    "metric",
    [
        BitsPerCharacter(LENGTHS, 5, name="mine"),
        BitsPerDim(MixtureOfLogistics(2, 1), name="mine"),
        BitsPerDim(ignore_class=-1),
    ],
)
def test_config_round_trip(metric):
    config = keras.saving.serialize_keras_object(metric)
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is type(metric)
    assert keras.saving.serialize_keras_object(again)["config"] == config["config"]


def test_likelihood_must_be_a_loss():
    with pytest.raises(ValueError, match="`likelihood`.*Received: likelihood='dmol'"):
        BitsPerDim("dmol")


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: BitsPerCharacter(3), "`token_lengths` must have a number for each id.*=3"),
        (lambda: BitsPerCharacter([2, "x"]), r"`token_lengths\[1\]` must be a number.*'x'"),
        (lambda: updated(BitsPerCharacter(LENGTHS[:-1])), "`token_lengths`.*10 numbers.*11 ids"),
    ],
)
def test_bad_token_lengths_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32"])
def test_lengths_of_labels_of_any_dtype(dtype):
    metric, expected = BitsPerCharacter(LENGTHS), updated(BitsPerCharacter(LENGTHS))
    for labels, logits in batches():
        metric.update_state(labels.astype(dtype), logits)
    assert float(metric.result()) == expected
