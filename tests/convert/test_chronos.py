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


@pytest.mark.parametrize(
    "options, message",
    [
        ({"inner": {"model_type": "causal"}}, "model_type='causal' is not converted"),
        ({"inner": {"tokenizer_class": "Words"}}, "tokenizer_class='Words' is not converted"),
        ({"inner": {"tokenizer_kwargs": {"low_limit": -1}}}, "`high_limit`.* must be a number"),
        ({"pad_token_id": 2}, "of missing values, 0, not pad_token_id=2"),
    ],
)
def test_other_options_are_refused(options, message, tmp_path):
    folder, _ = folder_of(tmp_path, "chronos", **options)
    with pytest.raises(ValueError, match=message):
        from_hugging_face(folder)
