"""Checkpoints of PatchTST beyond the golden files: what transformers itself fails at, refusals."""

import checkpoint_folders
import numpy as np
import oracles
import pytest

from keras_attn import layers, models
from keras_attn.convert import from_hugging_face, to_hugging_face

SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 4, "intermediate_dim": 5, "dropout": 0.0}
SIZES |= {"patch_length": 3, "stride": 2}


def read(folder, config, weights):
    return from_hugging_face(checkpoint_folders.write_folder(folder, config, weights))[0]


def test_a_projection_of_each_channel_is_that_of_a_shared_one(tmp_path):
    """transformers overwrites its input in a loop over channels, and computes nothing."""
    config, weights, arrays = checkpoint_folders.load_golden("patchtst")
    names = [name for name in weights if name.startswith("head.projection.")]
    expected, own = [], {k: v for k, v in weights.items() if k not in names}
    for channel in range(config["num_input_channels"]):
        projection = {name: weights[name] * (channel + 1) + 0.1 * channel for name in names}
        own |= {n.replace("ion.", f"ions.{channel}."): x for n, x in projection.items()}
        shared = read(tmp_path / str(channel), config, {**weights, **projection})
        expected.append(np.asarray(shared(arrays["input_values"]))[..., channel])
    model = read(tmp_path / "own", {**config, "share_projection": False}, own)
    actual = np.asarray(model(arrays["input_values"]))
    np.testing.assert_allclose(actual, np.stack(expected, axis=-1), rtol=1e-4, atol=1e-4)
    assert to_hugging_face(model, tmp_path / "out") == "patchtst"
    again, _ = from_hugging_face(tmp_path / "out")
    np.testing.assert_array_equal(again(arrays["input_values"]), actual)


@pytest.mark.parametrize(
    "name, options, words",
    [
        ("patchtst_values", {"loss": "nll"}, "The option loss='nll' of a PatchTSTForRegression"),
        ("patchtst_classifier", {"pooling_type": None}, "pooling_type=None is not converted"),
        ("patchtst", {"norm_type": "groupnorm"}, "norm_type='groupnorm' is not converted"),
        ("patchtst", {"architectures": ["PatchTSTModel"]}, "A PatchTSTModel is not converted"),
        (
            "patchtst_masked",
            {"mask_type": "forecast", "num_forecast_mask_patches": [1, 2]},
            r"num_forecast_mask_patches=\[1, 2\] is not converted",
        ),
    ],
)
def test_other_options_are_refused_by_name(name, options, words, tmp_path):
    config, weights, _ = checkpoint_folders.load_golden(name)
    with pytest.raises(ValueError, match=words):
        read(tmp_path / "in", {**config, **options}, weights)


@pytest.mark.parametrize(
    "arguments",
    [
        {"quantiles": (0.1, 0.9)},
        {"scaler": layers.SeriesScaler("fixed", loc=[0.0, 1.0], scale=[1.0, 2.0])},
        {"norm": "rms_norm"},
        {},
    ],
)
def test_models_that_transformers_lacks_are_refused(arguments, tmp_path):
    """Its patches without values are never masked, which ours are by default."""
    model = models.patch_tst(11, 2, 3, **SIZES, **arguments)
    with pytest.raises(ValueError, match="fits no family of checkpoints"):
        to_hugging_face(model, tmp_path / "out")


def test_a_model_of_ours_is_written(tmp_path):
    model = models.patch_tst(11, 2, 3, mask_empty=False, position="sinusoidal", **SIZES)
    oracles.scramble(model)
    assert to_hugging_face(model, tmp_path / "out") == "patchtst"
    again, _ = from_hugging_face(tmp_path / "out")
    values = oracles.random(3, 11, 2)
    np.testing.assert_allclose(again(values), model(values), atol=1e-6)
    assert not again.position.trainable
