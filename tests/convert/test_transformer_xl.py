"""Transformer-XL of Hugging Face: options that golden files lack, and models of ours."""

import checkpoint_folders
import numpy as np
import oracles
import pytest

from keras_attn import models
from keras_attn.convert import from_hugging_face, to_hugging_face

BIASES = ("r_w_bias", "r_r_bias")


def own(index, name):
    return f"transformer.layers.{index}.dec_attn.{name}"


@pytest.mark.slow
def test_biases_of_all_layers_are_copied_to_each(tmp_path):
    """A checkpoint of one u and one v is one in which those of all layers are equal."""
    config, weights, arrays = checkpoint_folders.load_golden("transformer_xl")
    shared = {f"transformer.{name}": weights[own(1, name)] for name in BIASES}
    weights.update({own(0, name): weights[own(1, name)] for name in BIASES})
    both = []
    for options, more in (({}, {}), ({"untie_r": False}, shared)):
        folder = checkpoint_folders.write_folder(
            tmp_path / str(len(both)), {**config, **options}, {**weights, **more}
        )
        model, _ = from_hugging_face(folder)
        inputs = {k.removeprefix("input_"): v for k, v in arrays.items() if "input_" in k}
        both.append(np.array(model(inputs)["logits"]))
    np.testing.assert_array_equal(*both)


@pytest.mark.slow
def test_names_of_older_files_are_read(tmp_path):
    """They have `n_token`, and copies of all tied tensors."""
    config, weights, arrays = checkpoint_folders.load_golden("transformer_xl")
    config["n_token"] = config.pop("vocab_size")
    for index in range(3):
        table = weights[f"transformer.word_emb.emb_layers.{index}.weight"]
        weights[f"crit.out_layers.{index}.weight"] = table
    for index in (1, 2):
        projection = weights[f"transformer.word_emb.emb_projs.{index}"]
        weights[f"crit.out_projs.{index}"] = projection
    model, _ = from_hugging_face(checkpoint_folders.write_folder(tmp_path, config, weights))
    assert checkpoint_folders.difference(model, arrays) <= checkpoint_folders.TOLERANCE


@pytest.mark.slow
def test_a_longer_memory_reads_what_it_is_given(tmp_path):
    """With `same_length` the number of keys of a query is that of the memory."""
    config, weights, arrays = checkpoint_folders.load_golden("transformer_xl")
    folder = checkpoint_folders.write_folder(tmp_path, config, weights)
    model, _ = from_hugging_face(folder, memory_length=13, clamp_length=29, dropout=0.5)
    attention = model.depth.blocks[1].attention
    assert (model.memory.memory_length, attention.pattern.window) == (13, 13)
    assert (attention.score.clamp_length, model.dropout) == (29, 0.5)
    assert checkpoint_folders.difference(model, arrays) > 1e-3


@pytest.mark.slow
def test_without_a_memory_the_model_has_logits_only(tmp_path):
    """An empty memory has the same logits."""
    config, weights, arrays = checkpoint_folders.load_golden("transformer_xl_causal")
    ids, logits = arrays["input_token_ids"], []
    for length in (0, 11):
        options = {**config, "mem_len": length}
        folder = checkpoint_folders.write_folder(tmp_path / str(length), options, weights)
        model, _ = from_hugging_face(folder)
        state = model.initial_memory(2) if length else {}
        outputs = model({"token_ids": ids, **state})
        logits.append(np.array(outputs["logits"] if length else outputs))
    np.testing.assert_allclose(*logits, atol=checkpoint_folders.TOLERANCE * np.abs(logits[0]).max())


@pytest.mark.slow
def test_a_transformer_xl_of_the_paper_is_written(tmp_path):
    options = {"memory_length": 3, "clamp_length": 7, "cutoffs": [5, 7], "div_val": 2}
    model = models.transformer_xl(13, 2, 2, 8, 11, **options)
    oracles.scramble(model)
    assert to_hugging_face(model, tmp_path / "out") == "transfo-xl"
    again, _ = from_hugging_face(tmp_path / "out")
    inputs = {"token_ids": np.array([[3, 5, 4, 12, 9]]), **model.initial_memory(1)}
    ours, theirs = model(inputs), again(inputs)
    for name in ("logits", "memory"):
        np.testing.assert_array_equal(np.array(ours[name]), np.array(theirs[name]))
