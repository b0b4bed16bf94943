"""Models converted from folders of Hugging Face give the outputs of transformers."""

import functools
import json

import checkpoint_folders
import numpy as np
import pytest
from checkpoint_folders import TOLERANCE, difference
from planted_mistakes import MISTAKES, changed

from keras_attn.convert import from_hugging_face

OPTIONS = [
    "bert_relu",
    "bert_features",
    "distilbert_classifier",
    "roberta_classifier",
    "longformer_features",
    "big_bird_features",
    "gpt2_scales",
    "gpt2_classifier",
    "mistral_classifier",
    "qwen2_classifier",
    "qwen3_classifier",
    "gemma_classifier",
    "gemma3_classifier",
    "llama_biases",
    "llama_linear",
    "llama_yarn",
    "marian_separate",
    "t5_gated",
    "transformer_xl_causal",
    "transformer_xl_untied",
]


@pytest.fixture(scope="module")
def convert(tmp_path_factory):
    """Function from a golden file's name to its model and arrays."""

    @functools.cache
    def convert(name):
        config, weights, arrays = checkpoint_folders.load_golden(name)
        folder = tmp_path_factory.mktemp(name)
        model, _ = from_hugging_face(checkpoint_folders.write_folder(folder, config, weights))
        return model, arrays

    return convert


LEARNED_POSITIONS = ["roberta", "distilbert", "longformer", "gpt2"]
# Of families whose parts are those of others the tests are slow ones.
ALIKE = {"bart", "distilbert", "gemma", "longformer", "mistral", "reformer_lsh", "roberta"}
ALIKE |= {"big_bird_classifier"}
FAMILIES = [pytest.param(n, marks=[pytest.mark.slow] * (n in ALIKE)) for n in MISTAKES]


@pytest.mark.parametrize("name", FAMILIES)
def test_outputs_are_those_of_transformers(convert, name):
    assert difference(*convert(name)) <= TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_outputs_with_other_options_are_those_of_transformers(convert, name):
    assert difference(*convert(name)) <= TOLERANCE


@pytest.mark.parametrize(
    "name", ["bert", *(pytest.param(n, marks=pytest.mark.slow) for n in LEARNED_POSITIONS)]
)
def test_a_longer_table_of_positions_repeats_that_of_the_checkpoint(convert, tmp_path, name):
    """Texts of before have the outputs of before."""
    before, arrays = convert(name)
    rows = before.position.table.numpy()
    folder = checkpoint_folders.write_folder(tmp_path, *checkpoint_folders.load_golden(name)[:2])
    model, _ = from_hugging_face(folder, max_length=2 * len(rows) + 3)
    np.testing.assert_array_equal(model.position.table, np.concatenate([rows, rows, rows[:3]]))
    assert difference(model, arrays) <= TOLERANCE
    longer = {"token_ids": np.full((1, len(rows) + 3), 5)}
    assert np.isfinite(np.asarray(model(longer))).all()


@pytest.mark.parametrize("name", FAMILIES)
def test_planted_mistakes_exceed_the_tolerance(convert, name):
    model, arrays = convert(name)
    for mistake, change in MISTAKES[name].items():
        with changed(*change(model)):
            assert difference(model, arrays) > 10 * TOLERANCE, mistake
    assert difference(model, arrays) <= TOLERANCE  # nothing stays changed


@pytest.mark.parametrize(
    "pooling",
    [
        {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
        {"embedding_dimension": 8, "pooling_mode": "cls", "include_prompt": True},
        {"pooling_mode": ["cls"]},
    ],
)
def test_a_sentence_encoder_of_first_tokens_has_no_pooler(pooling, tmp_path):
    """The outputs of transformers are those of the pooler, which is computed here beside it."""
    config, weights, arrays = checkpoint_folders.load_golden("bert_features")
    folder = checkpoint_folders.write_folder(tmp_path, config, weights)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))
    names = ("Transformer", "Pooling", "Normalize")
    modules = [{"type": f"sentence_transformers.models.{name}"} for name in names]
    (folder / "modules.json").write_text(json.dumps(modules))
    model, _ = from_hugging_face(folder)
    kernel, bias = (
        next(value for name, value in weights.items() if name.endswith(f"pooler.dense.{kind}"))
        for kind in ("weight", "bias")
    )
    assert difference(lambda inputs: np.tanh(model(inputs) @ kernel.T + bias), arrays) <= TOLERANCE


def test_big_bird_has_as_many_positions_as_transformers_computes_by_full_attention(tmp_path):
    config, weights, arrays = checkpoint_folders.load_golden("big_bird")
    folder = checkpoint_folders.write_folder(tmp_path, {**config, "block_size": 2}, weights)
    model, _ = from_hugging_face(folder)
    assert model.max_length == (5 + 2 * 3) * 2
    longer = arrays["input_token_ids"]
    with pytest.raises(ValueError, match="22"):
        model(longer)
    model, _ = from_hugging_face(folder, max_length=31)  # full attention over longer texts too
    assert difference(model, arrays) <= TOLERANCE
