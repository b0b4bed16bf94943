"""Options of a Reformer of Hugging Face that are not those of its golden files."""

import checkpoint_folders
import numpy as np
import pytest

from keras_attn import patterns
from keras_attn.convert import from_hugging_face


def write(folder, name, **options):
    config, weights, _ = checkpoint_folders.load_golden(name)
    return checkpoint_folders.write_folder(folder, {**config, **options}, weights)


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"is_decoder": False}, "is_decoder=False is not converted, only True"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings=True is not converted, only False"),
        ({"attn_layers": ["local", "full"]}, "attn_layers=['local', 'full'] is not converted"),
        ({"attn_layers": []}, "attn_layers=[] is not converted"),
        ({"lsh_num_chunks_before": 2}, "lsh_num_chunks_before=2 is not converted, only 1"),
        ({"local_num_chunks_after": 1}, "local_num_chunks_after=1 is not converted, only 0"),
        ({"axial_pos_embds_dim": [5, 8]}, "dims=(5, 8)"),
        ({"axial_pos_shape": None}, "`axial_pos_shape` in config.json must be a list of integers"),
        ({"num_hidden_layers": 2, "attn_layers": ["local"]}, "and 11 more, which the model has no"),
    ],
)
def test_other_options_are_refused(options, expected, tmp_path):
    with pytest.raises(ValueError) as caught:
        from_hugging_face(write(tmp_path, "reformer", **options))
    assert expected in str(caught.value)


@pytest.mark.slow
def test_chunks_of_the_feed_forward_layers_change_no_number(tmp_path):
    model, _ = from_hugging_face(write(tmp_path, "reformer", chunk_size_feed_forward=3))
    assert [block.feed_forward.chunks for block in model.depth.blocks] == [12, 12]  # of 35 tokens
    _, _, arrays = checkpoint_folders.load_golden("reformer")
    assert checkpoint_folders.difference(model, arrays) <= 2e-6


@pytest.mark.slow
def test_buckets_and_rounds_are_those_of_the_options(tmp_path):
    folder = write(tmp_path, "reformer_lsh", num_buckets=[4, 8], num_hashes=5)
    model, _ = from_hugging_face(folder)
    found = [block.attention.pattern for block in model.depth.blocks]
    assert repr(found[1]) == repr(patterns.BlockLocal1D(4, lookback=8))
    options = {"across_buckets": True, "wrap": True}
    assert repr(found[0]) == repr(found[2]) == repr(patterns.LSH(24, 5, 32, **options))


@pytest.mark.slow
def test_full_attention_may_replace_the_hashes(tmp_path):
    """In one chunk the hashes are full attention but to the own key, which changes the outputs."""
    model, _ = from_hugging_face(write(tmp_path, "reformer_lsh"), pattern=patterns.Causal())
    _, _, arrays = checkpoint_folders.load_golden("reformer_lsh")
    outputs = np.array(model({"token_ids": arrays["input_token_ids"]}))
    assert outputs.shape == arrays["outputs"].shape
    assert checkpoint_folders.difference(model, arrays) > 1e-3
