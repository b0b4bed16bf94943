import numpy as np
import pytest

from keras_attn import models
from keras_attn.generation import sample_paths
from keras_attn.layers import SeriesBins

B, N, H, TOP_K = 2, 3, 4, 7
END = 1


@pytest.fixture(scope="module")
def model():
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 11}
    limits = {"context_length": 13, "prediction_length": H, "num_samples": N, "top_k": TOP_K}
    model = models.chronos_t5(**sizes, **limits, bins=SeriesBins(23, -3, 3), temperature=0.7)
    for index, weight in enumerate(model.weights):
        weight.assign(np.random.default_rng(index).normal(0.0, 0.7, weight.shape))
    return model


@pytest.fixture
def values():
    values = np.random.default_rng(3).normal(size=(B, 17)).astype("float32")
    values[0, :6], values[1, 9:11] = np.nan, np.nan
    return values


@pytest.fixture
def noise():
    return np.random.default_rng(4).random((B, N, H + 2)).astype("float32")


def drawn_one_by_one(model, values, noise):
    """Return paths (N, H) of a series (T,), each token drawn from a whole pass of the model."""
    ids, scale = model.bins(values[None, -model.context_length :])
    paths = []
    for numbers in noise:
        tokens = [0]
        for number in numbers:
            inputs = {"source_ids": ids, "target_ids": np.array([tokens])}
            logits = np.array(model(inputs), "float64")[0, -1] / model.temperature
            logits[END] = -np.inf
            best = np.argsort(-logits)[:TOP_K]
            weights = np.exp(logits[best] - logits[best[0]])
            tokens.append(best[np.searchsorted(np.cumsum(weights / weights.sum()), number)])
        paths.append(tokens[1:])
    return np.array(model.bins.decode(np.array(paths)[None], scale))[0]


@pytest.mark.slow
def test_each_token_is_drawn_from_the_distribution_after_those_before(model, values, noise):
    paths = sample_paths(model, values, noise=noise[..., :H])
    for row in range(B):
        expected = drawn_one_by_one(model, values[row], noise[row, :, :H])
        np.testing.assert_allclose(paths[row], expected, rtol=1e-6)


@pytest.mark.slow
def test_a_longer_forecast_continues_after_the_median_path(model, values, noise):
    paths = np.array(sample_paths(model, values, H + 2, noise=noise))
    first = np.sort(paths[..., :H], axis=1)[:, (N - 1) // 2]
    more = sample_paths(model, np.concatenate([values, first], 1), 2, noise=noise[..., H:])
    np.testing.assert_allclose(paths[..., H:], more, rtol=1e-6)


@pytest.mark.slow
def test_a_graph_with_a_seed_draws_the_paths_of_an_eager_call(model, values):
    import tensorflow as tf

    specs = tf.TensorSpec([None, None]), tf.TensorSpec([], "int32")
    run = tf.function(lambda x, seed: sample_paths(model, x, num_samples=2, seed=seed), specs)
    np.testing.assert_array_equal(run(values, 5), sample_paths(model, values, None, 2, seed=5))


def test_training_ids_shift_the_targets_and_end_them(model, values):
    targets = np.array([[1.0, np.nan, 2.0], [0.5, 0.0, -9.0]])
    inputs, labels = model.training_ids(values, targets)
    ids, scale = model.bins(values[:, -13:])
    np.testing.assert_array_equal(inputs["source_ids"], ids)
    np.testing.assert_array_equal(labels, model.bins.encode(targets, scale))
    assert np.array(labels)[0, 1] == 0 and (np.array(labels)[:, -1] == END).all()
    np.testing.assert_array_equal(np.array(inputs["target_ids"])[:, 1:], np.array(labels)[:, :-1])


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"horizon": 0}, "`horizon` must be an integer of at least 1"),
        ({"num_samples": 0}, "`num_samples`"),
        ({"values": np.ones(5)}, r"`values` must be numbers of shape \(batch, length\)"),
        ({"model": "chronos"}, "`model` must be a `keras_attn.models.TokenForecaster`"),
    ],
)
def test_invalid_arguments_raise(arguments, message, model):
    with pytest.raises(ValueError, match=message):
        sample_paths(**{"model": model, "values": np.ones((1, 5)), **arguments})
