"""Checkpoints of Hugging Face: models with the outputs of transformers, and the way back.

The table of families beside the page of `convert` states what these tests compare.
"""

import json
import re

import checkpoint_folders
import checkpoint_table
import generation_cases
import numpy as np
import pages
import planted_mistakes
import pytest
import safetensors.numpy
from checkpoint_folders import TOLERANCE, difference
from planted_mistakes import MISTAKES, changed

from keras_attn import positions
from keras_attn.convert import from_hugging_face, to_hugging_face
from keras_attn.convert.hugging_face.families import FAMILIES
from keras_attn.convert.hugging_face.kernel_sources import kernel_sources
from keras_attn.convert.hugging_face.tensor_files import SINGLE
from keras_attn.layers.adapted_projections import projections
from recipes.benchmarks.checkpoint_families import families

# A causal model and an encoder-decoder.
FAST = ["llama", "t5"]
# Factors become part of the weights; a pretraining's other head, a pooler or a bias that no output
# depends on, and rows of tables that are of no position, as BART's and Longformer's, are left out,
# and a shared table that neither side reads. So are Phi-3's factors of texts of the other lengths.
FOLDED = ["bert_relu", "gpt2_scales", "gemma2", "gemma3", "gemma3_classifier", "bart"]
FOLDED += ["t5", "t5_gated", "t5_silu", "umt5", "longformer_features", "longformer_classifier"]
FOLDED += ["mbart", "pegasus", "big_bird", "big_bird_classifier", "reformer", "reformer_lsh"]
FOLDED += ["roberta", "roberta_classifier", "mpnet", "deberta_v2", "deberta_v2_classifier"]
FOLDED += ["phi3", "bert_untied", "big_bird_tags", "switch_transformers", "t5_encoder", "umt5_tags"]
FOLDED += ["decision_transformer", "opt", "bart_classifier", "bart_answers", "mbart_classifier"]
FOLDED += ["mbart_answers", "t5_classifier", "t5_answers", "umt5_classifier"]
FOLDED += ["chronos", "chronos_bolt"]
# XLM-R and CamemBERT become a RoBERTa, mT5 a T5; the others have the parts of one that is written.
ONE_WAY = {"camembert_classifier", "xlm_roberta", "longformer", "big_bird_features", "mt5"}
ONE_WAY |= {"granite"}  # it becomes a Llama
ONE_WAY |= {"bloom", "bloom_tags"}  # another table passes the norm, by a test of its own
# Options that a model does not have, or has by other names.
OTHER = {
    *("attn_pdrop", "embd_pdrop", "id2label", "label2id", "max_position_embeddings"),
    *("bos_token_id", "eos_token_id", "pad_token_id", "forced_eos_token_id"),
    "activation_function",  # swish is silu
}
OTHER_FOLDED = {
    *("architectures", "attention_type", "attention_window"),
    "decoder_start_token_id",  # absent in an mBART, whose targets begin with bos
    *("is_encoder_decoder", "n_positions", "rope_parameters"),
    *("tie_word_embeddings", "word_embed_proj_dim"),
    *("legacy", "norm_rel_ebd", "pos_att_type", "share_att_key"),
    *("query_pre_attn_scalar", "scale_attn_weights", "scale_attn_by_inverse_layer_idx"),
}


def check_mistakes(name, case):
    """Each planted mistake is told apart."""
    for mistake, change in MISTAKES.get(name, {}).items():
        with changed(*change(case.model)):
            apart = difference(case.model, case.arrays)
        assert apart > 10 * TOLERANCE, f"{name}: {mistake}"


def check_projections(name, case):
    """Each projection but the heads that share a table is a copy of one layer, or of a part."""
    sources, known = kernel_sources(case.model, case.folder), projections(case.model)
    assert sources.keys() == known.keys(), name
    for path, source in sources.items():
        weight = case.weights[f"{source.name}.weight"]
        weight = weight if source.is_transposed else weight.T
        part = weight[source.inputs][:, source.outputs] * source.scale
        kernel = np.reshape(known[path].kernel, part.shape)
        np.testing.assert_allclose(part, kernel, rtol=1e-6, err_msg=f"{name} {path}")


def different_options(folder, config):
    """Return the options that a folder has with other values than a configuration."""
    written = json.loads((folder / "config.json").read_text())
    return {k for k, value in written.items() if k in config and config[k] != value}


def check_way_back(name, case, out):
    """The tensors and options that made the model are written, or others of the same model."""
    assert to_hugging_face(case.model, out) == case.config["model_type"]
    is_folded = name in FOLDED
    assert different_options(out, case.config) <= OTHER | (OTHER_FOLDED if is_folded else set())
    if not is_folded:
        written = safetensors.numpy.load_file(out / SINGLE)
        assert written.keys() == case.weights.keys(), name
        for key, value in case.weights.items():
            np.testing.assert_array_equal(written[key], value, f"{name} {key}")
        return
    again, _ = from_hugging_face(out)
    for ours, theirs in zip(case.model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy(), f"{name} {ours.path}")


@pytest.mark.parametrize("name", FAST)
def test_a_checkpoint_has_the_outputs_of_transformers_and_comes_back(name, checkpoint, tmp_path):
    case = checkpoint(name)
    assert difference(case.model, case.arrays) <= TOLERANCE
    check_way_back(name, case, tmp_path / "out")


# Families with other layers than those whose projections test_peft.py finds: two sides, one layer
# for queries, keys and values and for the gate, for queries and keys, and for patches.
PROJECTED = ("gpt_neox", "phi3", "t5", "transformer_xl", "reformer", "vit")
# Rounding differs between machines: some units of float32 are no difference, and each may double.
UNITS = 1e-6
ROUNDING = 2
TABLE = checkpoint_table.recorded()["checkpoints"]


def named(text):
    """Return the words that a text has as code."""
    return set(re.findall("`([^`]+)`", text))


def test_the_page_has_each_family_and_each_golden_file():
    """The results are those of the golden files of today, and the page has their table."""
    digests = {name: row["digest"] for name, row in TABLE.items()}
    assert digests == {name: checkpoint_table.digest(name) for name in checkpoint_table.NAMES}
    assert {row["family"] for row in TABLE.values()} == FAMILIES.keys()
    page = pages.text(checkpoint_table.PAGE)
    assert "\n".join(checkpoint_table.page_table()) in page
    facts, _, models = page.partition("## Models")
    assert FAMILIES.keys() <= named(models)
    texts = next(part for part in facts.split("\n\n") if part.startswith("The decoded texts"))
    assert named(texts) == {*generation_cases.CASES, *generation_cases.CAUSAL}


def test_each_family_is_compared_with_transformers_by_a_command():
    """Version 5 of transformers has no Transformer-XL: its golden files are of version 4."""
    assert families().keys() == FAMILIES.keys() - {"transfo-xl"}


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLE)
def test_a_checkpoint_is_what_the_table_says(name, checkpoint, tmp_path):
    case, row = checkpoint(name), TABLE[name]
    limit = ROUNDING * max(UNITS, row["difference"])
    assert difference(case.model, case.arrays) <= min(TOLERANCE, limit)
    check_mistakes(name, case)
    if name in PROJECTED:
        check_projections(name, case)
    if name not in ONE_WAY:
        check_way_back(name, case, tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert_classifier", "llama"])
def test_an_exit_takes_what_the_table_says(name, tmp_path):
    """The tests of exits write models of each kind; these are a yes and a no."""
    trial, row = checkpoint_table.Trial(name, tmp_path), TABLE[name]
    trial.onnx()
    assert row["ONNX"] == checkpoint_table.YES
    with pytest.raises(ValueError, match=re.escape(row["reasons"]["CTranslate2"])):
        trial.ctranslate2()


def test_stored_sinusoids_are_no_weights(tmp_path):
    """Pegasus stores its positions, with which transformers computes whatever they are."""
    config, weights, arrays = checkpoint_folders.load_golden("pegasus")
    tables = [name for name in weights if "embed_positions" in name]
    sinusoids = planted_mistakes.sines(weights[tables[0]])
    weights |= dict.fromkeys(tables, sinusoids)
    model, _ = from_hugging_face(checkpoint_folders.write_folder(tmp_path / "a", config, weights))
    assert isinstance(model.position, positions.Sinusoidal)
    weights[tables[0]] = sinusoids + 1e-5
    other, _ = from_hugging_face(checkpoint_folders.write_folder(tmp_path / "b", config, weights))
    assert isinstance(other.position, positions.Learned)
    ids = {name: arrays[f"input_{name}"] for name in ("source_ids", "target_ids")}
    expected = np.asarray(other(ids))
    np.testing.assert_allclose(model(ids), expected, atol=1e-3 * np.abs(expected).max())
    assert to_hugging_face(model, tmp_path / "out") == "pegasus"
    written = safetensors.numpy.load_file(tmp_path / "out" / SINGLE)
    np.testing.assert_allclose(written[tables[0]][: len(sinusoids)], sinusoids, atol=1e-6)


@pytest.mark.slow
def test_a_longer_table_of_positions_repeats_that_of_the_checkpoint(checkpoint):
    """Texts of before have the outputs of before."""
    case = checkpoint("roberta")
    rows = case.model.position.table.numpy()
    model, _ = from_hugging_face(case.folder, max_length=2 * len(rows) + 3)
    np.testing.assert_array_equal(model.position.table, np.concatenate([rows, rows, rows[:3]]))
    assert difference(model, case.arrays) <= TOLERANCE
    longer = {"token_ids": np.full((1, len(rows) + 3), 5)}
    assert np.isfinite(np.asarray(model(longer))).all()


@pytest.mark.slow
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
    names = ("Transformer", "Pooling")
    modules = [{"type": f"sentence_transformers.models.{name}"} for name in names]
    (folder / "modules.json").write_text(json.dumps(modules))
    model, _ = from_hugging_face(folder)
    kernel, bias = (
        next(value for name, value in weights.items() if name.endswith(f"pooler.dense.{kind}"))
        for kind in ("weight", "bias")
    )
    assert difference(lambda inputs: np.tanh(model(inputs) @ kernel.T + bias), arrays) <= TOLERANCE


@pytest.mark.slow
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
