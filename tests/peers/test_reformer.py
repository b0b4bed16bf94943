"""A converted Reformer with LSH layers beside transformers, given the same buckets."""

import json

import checkpoint_folders
import numpy as np
import pytest
from fork_server import ROOT
from keras import ops
from peers import part, results_of

from keras_attn.convert import from_hugging_face

SCRIPT = ROOT / "tests/peers/reformer_buckets.py"


def give(pattern, buckets, num_heads):
    """Hash each head of each row to the same buckets (rounds, T)."""
    given = ops.tile(ops.convert_to_tensor(buckets, "int32")[None, None], (2, num_heads, 1, 1))
    pattern.buckets = lambda inputs: given


@pytest.mark.slow
@pytest.mark.parametrize("case", ["one round", "three rounds"])
def test_outputs_are_those_of_transformers_with_its_buckets(case, tmp_path):
    """Version 5 forgets to add the bias of the logits, which the model adds."""
    found = results_of(SCRIPT, case)
    weights, config = part(found, "weights/"), json.loads(str(found["config"]))
    model, _ = from_hugging_face(checkpoint_folders.write_folder(tmp_path, config, weights))
    for block, buckets in zip(model.depth.blocks, found["buckets"], strict=True):
        if block.attention.shares_query:
            give(block.attention.pattern, buckets, block.attention.num_heads)
    outputs = np.array(model(found["ids"])) - weights["lm_head.bias"]
    difference = np.abs(outputs - found["outputs"]).max() / np.abs(found["outputs"]).max()
    print(f"largest difference {difference:.1e} of the largest output")
    assert difference <= 2e-6
