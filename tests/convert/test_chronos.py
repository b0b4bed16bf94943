"""Folders of chronos-forecasting: what beside the outputs comes from them, and is refused."""

import json

import checkpoint_folders
import pytest

from keras_attn import models
from keras_attn.convert import from_hugging_face, to_hugging_face


def folder_of(path, name, **options):
    """Write a folder with other options in `chronos_config`, or beside it."""
    config, weights, _ = checkpoint_folders.load_golden(name)
    inner = {**config["chronos_config"], **options.pop("inner", {})}
    config = {**config, "chronos_config": inner, **options}
    return checkpoint_folders.write_folder(path, config, weights), config


@pytest.mark.slow
def test_a_forecaster_comes_with_its_bins_and_its_sampling(tmp_path):
    inner = {"top_p": 0.9, "top_k": 0, "temperature": 0.5, "use_eos_token": False}
    folder, config = folder_of(tmp_path / "in", "chronos", inner=inner)
    model, tokenizer = from_hugging_face(folder)
    assert type(model) is models.TokenForecaster and tokenizer is None
    assert (model.top_k, model.top_p, model.temperature) == (None, 0.9, 0.5)
    assert (model.context_length, model.prediction_length, model.num_samples) == (29, 5, 3)
    assert (model.bins.num_tokens, model.bins.low, model.bins.high) == (41, -3.0, 3.5)
    assert to_hugging_face(model, tmp_path / "out") == "t5"
    written = json.loads((tmp_path / "out/config.json").read_text())
    assert written["chronos_config"] == config["chronos_config"]


@pytest.mark.slow
def test_a_bolt_comes_back_with_its_levels_and_patches(tmp_path):
    folder, config = folder_of(tmp_path / "in", "chronos_bolt")
    model, tokenizer = from_hugging_face(folder)
    assert type(model) is models.PatchForecaster and tokenizer is None
    assert model.quantiles == (0.1, 0.5, 0.7) and model.patches.stride == 2
    assert to_hugging_face(model, tmp_path / "out") == "t5"
    written = json.loads((tmp_path / "out/config.json").read_text())
    for name in ("chronos_config", "chronos_pipeline_class", "architectures"):
        assert written[name] == config[name]


@pytest.mark.parametrize(
    "name, options, message",
    [
        ("chronos", {"inner": {"model_type": "causal"}}, "model_type='causal' is not converted"),
        (
            "chronos",
            {"inner": {"tokenizer_class": "Words"}},
            "tokenizer_class='Words' is not",
        ),
        (
            "chronos",
            {"inner": {"tokenizer_kwargs": {"low_limit": -1}}},
            "`high_limit`.* a number",
        ),
        ("chronos", {"pad_token_id": 2}, "of missing values, 0, not pad_token_id=2"),
        ("chronos_bolt", {"inner": {"input_patch_stride": 3}}, "must divide input_patch_size"),
        ("chronos_bolt", {"inner": {"quantiles": [0.5, 2]}}, "`quantiles`.* list of levels"),
        ("chronos_bolt", {"decoder_start_token_id": 1}, "must start with the id 0, not 1"),
    ],
)
def test_other_options_are_refused(name, options, message, tmp_path):
    folder, _ = folder_of(tmp_path, name, **options)
    with pytest.raises(ValueError, match=message):
        from_hugging_face(folder)
