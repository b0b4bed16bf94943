"""`patch_tst` and `Forecaster`: heads, missing values, files; `Classifier` of series."""

import keras
import numpy as np
import oracles
import pytest
from marks import slow_but

from keras_attn import depth, layers, models
from keras_attn.losses import DistributionLoss, Quantile

B, T, C, H = 5, 13, 3, 7
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 6, "intermediate_dim": 11, "dropout": 0.0}
SIZES |= {"patch_length": 4, "stride": 2}
NAN = float("nan")


def series():
    """Return five series: of gaps, none missing, all missing, constant, and short."""
    values = oracles.random(B, T, C) * 3 + 7
    values[0, 3:9, 1] = values[2] = values[4, :8] = NAN
    values[3] = 5
    return values.astype("float32")


HEADS = {
    "points": ({"prediction_length": H}, (H, C)),
    "quantiles": ({"prediction_length": H, "quantiles": (0.1, 0.9)}, (H, C, 2)),
    "student_t": ({"prediction_length": H, "distribution": "student_t"}, (H, C, 3)),
    "classes": ({"num_classes": 4}, (4,)),
    "values": ({"num_targets": 2, "target_range": (-1, 3), "class_token": True}, (2,)),
    "masked": ({"masking": 0.4, "channel_attention": True}, (C, 5, 4)),
}


@pytest.mark.parametrize("name", HEADS)
def test_heads_have_their_shape_and_are_finite(name):
    arguments, shape = HEADS[name]
    model = models.patch_tst(T, C, **arguments, **SIZES)
    oracles.scramble(model)
    output = np.asarray(model(series()))
    assert output.shape == (B, *shape) and np.isfinite(output).all()
    assert model.output.shape == (None, *shape)
    if name == "values":
        assert (output > -1).all() and (output < 3).all()
    # A row does not depend on the others.
    np.testing.assert_allclose(model(series()[:1])[0], output[0], atol=1e-5)


@pytest.mark.parametrize("distribution", [None, "normal", "negative_binomial"])
def test_as_many_rows_as_steps_keep_their_own_scale(distribution):
    """Keras on TensorFlow would take (B, 1, 1) for the bias of the axis of H = B steps."""
    model = models.patch_tst(T, 1, H, distribution=distribution, **SIZES)
    oracles.scramble(model)
    values = (oracles.random(H, T, 1) + 10 * np.arange(H)[:, None, None]).astype("float32")
    alone = np.concatenate([model(values[i : i + 1]) for i in range(H)])
    np.testing.assert_allclose(model(values), alone, rtol=1e-4, atol=1e-4)


def test_forecasts_follow_the_scale_of_the_series():
    model = models.patch_tst(T, C, H, scaler=layers.SeriesScaler(epsilon=0.0), **SIZES)
    oracles.scramble(model)
    values = series()[:2]
    np.testing.assert_allclose(model(10 * values - 4), 10 * model(values) - 4, rtol=1e-4)


def test_masked_patches_change_nothing():
    """A short series has the classes of a series whose missing patches have other positions."""
    model = models.patch_tst(T, C, num_classes=4, position=None, **{**SIZES, "stride": 4})
    oracles.scramble(model)
    values = oracles.random(1, T, C).astype("float32")
    front, back = values.copy(), np.full_like(values, NAN)
    front[:, :9] = NAN
    back[:, 1:5] = front[:, 9:]
    np.testing.assert_allclose(model(front), model(back), atol=1e-5)


@pytest.mark.slow
def test_training_lowers_each_loss():
    keras.utils.set_random_seed(0)
    times = np.arange(40)[:, None] + np.arange(T + H)
    waves = np.stack([np.sin(times / k) for k in (2, 3, 5)], axis=-1).astype("float32")
    x, y = waves[:, :T], waves[:, T:].copy()
    y[0, 0] = NAN
    quantiles = models.patch_tst(T, C, H, quantiles=(0.1, 0.9), **SIZES)
    quantiles.compile(keras.optimizers.Adam(0.01), Quantile((0.1, 0.9)))
    masking = models.patch_tst(T, C, masking=0.4, **SIZES)
    masking.compile(keras.optimizers.Adam(0.01))
    for model, targets in ((quantiles, y), (masking, None)):
        losses = model.fit(x, targets, epochs=4, batch_size=8, verbose=0).history["loss"]
        assert np.isfinite(losses).all() and losses[-1] < 0.9 * losses[0]


@pytest.mark.slow
def test_samples_follow_the_distribution():
    model = models.patch_tst(T, C, 2, distribution="negative_binomial", **SIZES)
    values = np.abs(series())
    total, logits = np.moveaxis(np.asarray(model(values)[1]), -1, 0)  # (H, C)
    samples = model.sample(values, 4000, seed=0)
    assert samples.shape == (B, 4000, 2, C) and (samples == np.round(samples)).all()
    np.testing.assert_allclose(samples[1].mean(0), total * np.exp(logits), rtol=0.1)
    loss = DistributionLoss("negative_binomial")
    assert np.isfinite(float(loss(samples[:, 0], model(values))))
    with pytest.raises(ValueError, match="`sample` needs a model of a distribution"):
        models.patch_tst(T, C, H, **SIZES).sample(values)


@pytest.mark.parametrize("name", slow_but(["classes"], ["student_t", "classes", "masked"]))
def test_files_and_clones_give_the_same_numbers(name, tmp_path):
    policy = "mixed_bfloat16" if name == "classes" else "float32"
    keras.config.set_dtype_policy(policy)
    try:
        model = models.patch_tst(T, C, **HEADS[name][0], position="sinusoidal", **SIZES)
    finally:
        keras.config.set_dtype_policy("float32")
    oracles.scramble(model)
    model.encoder.blocks[0].residual.trainable = False
    model.save(tmp_path / "model.keras")
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    for other in (keras.models.load_model(tmp_path / "model.keras"), clone):
        np.testing.assert_allclose(other(series()), model(series()), atol=1e-6)
        flags = [[v.trainable for v in m.weights] for m in (model, other)]
        assert flags[0] == flags[1] and not other.position.trainable


def joined_classifier(series_shape=(None, C), **arguments):
    block = layers.TransformerBlock(layers.MultiHeadAttention(2, 4), layers.FeedForward(11))
    embedding = layers.SeriesEmbedding(8, 1, scaler=layers.SeriesScaler())
    stack = depth.Stack([block])
    return models.Classifier(embedding, stack, 4, series_shape=series_shape, **arguments)


def test_a_classifier_reads_series_of_any_length(tmp_path):
    model = joined_classifier(pooling="mean")
    oracles.scramble(model)
    values = series()
    longer = np.concatenate([values, np.full((B, 4, C), NAN, "float32")], axis=1)
    np.testing.assert_allclose(model(longer), model(values), atol=1e-5)
    assert np.isfinite(np.asarray(model(values))).all()
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(values), model(values), atol=1e-6)


@pytest.mark.parametrize("shape", [C, (None, 0), (0, C), (T, None), (T,), (T, C, 1)])
def test_a_wrong_series_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"`series_shape` must be \(times, channels\)"):
        joined_classifier(shape, pooling="mean")


def test_a_dense_layer_may_embed_numbers():
    block = layers.TransformerBlock(layers.MultiHeadAttention(2, 4), layers.FeedForward(11))
    model = models.Classifier(
        keras.layers.Dense(8), depth.Stack([block]), 4, series_shape=(T, C), pooling="last"
    )
    assert model(np.nan_to_num(series())).shape == (B, 4)


def test_channels_may_have_embeddings_of_their_own():
    layer = layers.SeriesEmbedding(5, layers.SeriesPatches(3), separate_channels=True, shared=False)
    values = oracles.random(2, 11, C)
    layer.build(values.shape)
    oracles.scramble(layer)
    kernel, bias = map(oracles.numpy_of, layer.weights)
    rows = [
        [values[b, 2 + 3 * i : 5 + 3 * i, c] @ kernel[c] + bias[c] for i in range(3)]
        for b in range(2)
        for c in range(C)
    ]
    np.testing.assert_allclose(layer(values), np.array(rows), atol=1e-5)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({}, "Exactly one of prediction_length, num_classes, num_targets, masking must be"),
        ({"prediction_length": 3, "num_classes": 2}, "Exactly one of"),
        ({"prediction_length": 0}, "`prediction_length` must be"),
        ({"num_classes": 2, "quantiles": (0.5,)}, "`quantiles` must be None without `pred"),
        ({"prediction_length": 3, "target_range": (0, 1)}, "None without `num_targets`"),
        ({"prediction_length": 3, "quantiles": (1.5,)}, "`quantiles` must be numbers between"),
        ({"num_targets": 1, "target_range": (2, 1)}, "`target_range` must be .low, high."),
    ],
)
def test_wrong_arguments_raise(arguments, words):
    with pytest.raises(ValueError, match=words):
        models.patch_tst(T, C, **arguments, **SIZES)
