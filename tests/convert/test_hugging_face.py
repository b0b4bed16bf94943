"""Checkpoints of Hugging Face: models with the outputs of transformers, and the way back.

The table of families on the page of `convert` states what these tests compare.
"""

import functools
import json
import re

import checkpoint_folders
import generation_cases
import numpy as np
import pages
import planted_mistakes
import pytest
import safetensors.numpy
from checkpoint_folders import TOLERANCE, difference
from planted_mistakes import MISTAKES, changed

from keras_attn import export, models, positions
from keras_attn.convert import from_hugging_face, to_hugging_face
from keras_attn.convert.hugging_face.conversion import FAMILIES
from keras_attn.convert.hugging_face.kernel_sources import kernel_sources
from keras_attn.convert.hugging_face.tensor_files import SINGLE
from keras_attn.layers.adapted_projections import projections

NAMES = sorted(path.stem for path in checkpoint_folders.GOLDEN.glob("*.npz"))
# A causal model and an encoder-decoder.
FAST = ["llama", "t5"]
# Factors become part of the weights; a pretraining's other head, a pooler or a bias that no output
# depends on, and rows of tables that are of no position, as BART's and Longformer's, are left out,
# and a shared table that neither side reads. So are Phi-3's factors of texts of the other lengths.
FOLDED = ["bert_relu", "gpt2_scales", "gemma2", "gemma3", "gemma3_classifier", "bart"]
FOLDED += ["t5", "t5_gated", "t5_silu", "umt5", "longformer_features", "longformer_classifier"]
FOLDED += ["mbart", "pegasus", "big_bird", "big_bird_classifier", "reformer", "reformer_lsh"]
FOLDED += ["roberta", "roberta_classifier", "mpnet", "deberta_v2", "deberta_v2_classifier"]
FOLDED += ["phi3", "bert_untied", "big_bird_tags", "switch_transformers"]
# XLM-R and CamemBERT become a RoBERTa, mT5 a T5; the others have the parts of one that is written.
ONE_WAY = {"camembert_classifier", "xlm_roberta", "longformer", "big_bird_features", "mt5"}
ONE_WAY |= {"granite"}  # it becomes a Llama
# Options that a model does not have, or has by other names.
OTHER = {
    *("attn_pdrop", "embd_pdrop", "id2label", "label2id", "max_position_embeddings"),
    *("bos_token_id", "eos_token_id", "pad_token_id", "forced_eos_token_id"),
    "activation_function",  # swish is silu
}
OTHER_FOLDED = {
    *("architectures", "attention_type", "attention_window"),
    "decoder_start_token_id",  # absent in an mBART, whose targets begin with bos
    "rope_parameters",
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


PAGE = pages.ROOT / "keras_attn/convert/README.md"
NO, SOME, YES = "no", "some", "yes"
# Families with other layers than those whose projections test_peft.py finds: two sides, one layer
# for queries, keys and values, for queries and keys, and for patches.
PROJECTED = ("gpt_neox", "t5", "transfo-xl", "reformer", "vit")
# Rounding differs between machines and libraries of linear algebra.
ROUNDING = 2


def rows():
    """Return the cells of each family's row by the table's head."""
    text = pages.text(PAGE)
    table = text[text.index("| family |") :].split("\n\n")[0].splitlines()
    head, _, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return {cells[0].strip("`"): dict(zip(head, cells, strict=True)) for cells in lines}


TABLE = rows()


@functools.cache
def family(name):
    return checkpoint_folders.load_golden(name)[0]["model_type"]


def names_of(model_type):
    return [name for name in NAMES if family(name) == model_type]


def test_each_family_has_a_row_and_each_of_its_checkpoints_is_named():
    assert TABLE.keys() == FAMILIES.keys()
    for model_type, row in TABLE.items():
        assert len(row["compared"].split(", ")) == len(names_of(model_type)), model_type
    texts = {name for name, row in TABLE.items() if row["texts"] == YES}
    assert texts == {*generation_cases.CASES, *generation_cases.CAUSAL}


def ids_of(model, config):
    """Return the ids of the first and the last token, of a model that generates."""
    if not hasattr(model, "reads_prompt"):
        return {}
    start, end = config.get("decoder_start_token_id"), config.get("eos_token_id")
    end = end if isinstance(end, int) and end < config["vocab_size"] else 1
    return {"max_length": 5, "bos_id": start or 0, "eos_id": end}


@pytest.mark.slow
@pytest.mark.parametrize("model_type", TABLE)
def test_checkpoints_of_a_family_are_what_the_table_says(model_type, checkpoint, tmp_path):
    """CTranslate2 takes no, some or all of the checkpoints other than classifiers."""
    row, written, names = TABLE[model_type], [], names_of(model_type)
    if model_type in PROJECTED:
        check_projections(names[0], checkpoint(names[0]))
    for name in names:
        case = checkpoint(name)
        most = min(TOLERANCE, ROUNDING * float(row["outputs"]))
        assert difference(case.model, case.arrays) <= most, name
        check_mistakes(name, case)
        if name not in ONE_WAY:
            check_way_back(name, case, tmp_path / name)
        if not (isinstance(case.model, models.Classifier) and case.model.num_classes is not None):
            ids = ids_of(case.model, case.config)
            written.append(writes_ctranslate2(case.model, tmp_path / f"{name}.ct2", ids))
    takes = YES if written and all(written) else SOME if any(written) else NO
    assert takes == row["CTranslate2"]
    if model_type == "bert":  # the tests of exports write decoders
        export.onnx(checkpoint("bert").model, tmp_path / "bert.onnx", "encoder", max_length=5)
        assert row["ONNX"] == YES


def writes_ctranslate2(model, path, ids):
    try:
        export.ctranslate2(model, path, **ids)
    except ValueError as error:
        assert re.search("CTranslate2 lacks this part|must be an?", str(error))
        return False
    return True


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
