"""Reformer of Hugging Face: options that golden files lack, and models of ours."""

import json

import checkpoint_folders
import numpy as np
import pytest
import safetensors.numpy

from keras_attn import patterns
from keras_attn.convert import from_hugging_face, to_hugging_face


def write(folder, name, **options):
    config, weights, _ = checkpoint_folders.load_golden(name)
    return checkpoint_folders.write_folder(folder, {**config, **options}, weights)


@pytest.mark.slow
def test_chunks_of_the_feed_forward_layers_change_no_number(tmp_path):
    model, _ = from_hugging_face(write(tmp_path, "reformer", chunk_size_feed_forward=3))
    assert [block.feed_forward.chunks for block in model.depth.blocks] == [12, 12]  # of 35 tokens
    _, _, arrays = checkpoint_folders.load_golden("reformer")
    assert checkpoint_folders.difference(model, arrays) <= checkpoint_folders.TOLERANCE


@pytest.mark.slow
def test_buckets_and_rounds_are_those_of_the_options(tmp_path):
    folder = write(tmp_path, "reformer_lsh", num_buckets=[4, 8], num_hashes=5)
    model, _ = from_hugging_face(folder)
    by_layer = [block.attention.pattern for block in model.depth.blocks]
    assert repr(by_layer[1]) == repr(patterns.BlockLocal1D(4, lookback=8))
    options = {"across_buckets": True, "wrap": True}
    assert repr(by_layer[0]) == repr(by_layer[2]) == repr(patterns.LSH(24, 5, 32, **options))


@pytest.mark.slow
def test_full_attention_may_replace_the_hashes(tmp_path):
    """In one chunk the hashes are full attention but to the own key, which changes the outputs."""
    model, _ = from_hugging_face(write(tmp_path, "reformer_lsh"), pattern=patterns.Causal())
    _, _, arrays = checkpoint_folders.load_golden("reformer_lsh")
    outputs = np.array(model({"token_ids": arrays["input_token_ids"]}))
    assert outputs.shape == arrays["outputs"].shape
    assert checkpoint_folders.difference(model, arrays) > 1e-3


@pytest.mark.slow
def test_queries_that_are_keys_come_back_where_the_root_of_their_size_is_a_power_of_two(tmp_path):
    """They are multiplied by this root; other roots round."""
    config, weights, _ = checkpoint_folders.load_golden("reformer_lsh")
    shapes = {name: [12 if n == 15 else n for n in x.shape] for name, x in weights.items()}
    weights = checkpoint_folders.draw(shapes, 0)
    config |= {"attention_head_size": 4, "num_buckets": 6, "num_hashes": 5}
    model, _ = from_hugging_face(checkpoint_folders.write_folder(tmp_path / "in", config, weights))
    to_hugging_face(model, tmp_path / "out")
    written = safetensors.numpy.load_file(tmp_path / "out/model.safetensors")
    # transformers 5 reads the bias by another name than its version 4.
    copy = written.pop("lm_head.decoder.bias")
    np.testing.assert_array_equal(copy, weights["lm_head.bias"])
    assert written.keys() == weights.keys()
    for key, value in weights.items():
        np.testing.assert_array_equal(written[key], value, key)
    options = json.loads((tmp_path / "out/config.json").read_text())
    assert {k for k in options.keys() & config if options[k] != config[k]} == {"eos_token_id"}
