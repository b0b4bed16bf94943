"""check_series over our layers and models of series, and over layers with one defect each."""

import keras
import pytest
from keras import ops

from keras_attn import models
from keras_attn.layers import SeriesEmbedding, SeriesPatches, SeriesPool, SeriesScaler
from keras_attn.testing import check_series

SHAPE = 3, 11, 2
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 4, "intermediate_dim": 5, "dropout": 0.0}
SIZES |= {"patch_length": 3, "stride": 2, "channel_attention": True}
OURS = {
    "patches": lambda: SeriesPatches(4, 3),
    "padded patches": lambda: SeriesPatches(4, pad=True, join_mask=True),
    "embedding": lambda: SeriesEmbedding(5, 1, scaler=SeriesScaler()),
    "separate channels": lambda: SeriesEmbedding(
        5, SeriesPatches(4), SeriesScaler("mean"), separate_channels=True, class_token=True
    ),
    "forecaster": lambda: models.patch_tst(11, 2, 3, quantiles=(0.1, 0.9), **SIZES),
    "classifier": lambda: models.patch_tst(11, 2, num_classes=3, **SIZES),
    "distribution": lambda: models.patch_tst(
        11, 2, 3, distribution="student_t", scaler=SeriesScaler(epsilon=0.0), **SIZES
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            n, marks=[pytest.mark.slow] if n in ("classifier", "distribution", "forecaster") else []
        )
        for n in OURS
    ],
)
def test_our_layers_and_models_have_no_defect(name):
    check_series(OURS[name](), *SHAPE).raise_if_any()


class Plain(keras.layers.Layer):
    """Multiply values as they are."""

    def call(self, values):
        return 2 * values


class ReplacesAfterwards(keras.layers.Layer):
    """Replace NaN in the product, whose gradient stays NaN."""

    def call(self, values):
        y = ops.sqrt(ops.square(values))
        return ops.where(ops.isnan(y), 0.0, y)


class IgnoresMask(keras.layers.Layer):
    """Read padded values."""

    supports_masking = True

    def call(self, values, mask=None):
        return 2 * ops.where(ops.isnan(values), 0.0, values)


@pytest.mark.parametrize(
    "broken, words",
    [
        (Plain, "With missing values an output is not finite"),
        (ReplacesAfterwards, "With missing values a gradient is not finite"),
        (IgnoresMask, "Changing padded values to others changed the output"),
    ],
)
def test_each_defect_is_found(broken, words):
    assert words in str(check_series(broken(), *SHAPE))


def test_wrong_arguments_raise():
    with pytest.raises(ValueError, match="`shape` must be the sizes of three rows or more"):
        check_series(SeriesPool(), 2, 11)
