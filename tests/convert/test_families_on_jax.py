"""Converted models on JAX have the outputs of transformers."""

import pytest
from checkpoint_folders import TOLERANCE
from other_backend import needs_jax, run_on

# Families whose layers differ: tables of distances, shared layers, experts, positions of each kind.
NAMES = "albert deberta_v2 electra m2m_100 mpnet opt phi3 qwen2_moe".split()

PROGRAM = f"""
import json
import sys
import tempfile
sys.path.insert(0, "tests/support")
import checkpoint_folders as folders
from keras_attn.convert import from_hugging_face

differences = {{}}
for name in {NAMES}:
    config, weights, arrays = folders.load_golden(name)
    with tempfile.TemporaryDirectory() as folder:
        model, _ = from_hugging_face(folders.write_folder(folder, config, weights))
    differences[name] = float(folders.difference(model, arrays))
print(json.dumps(differences))
"""


@pytest.mark.slow
@needs_jax
def test_outputs_on_jax_are_those_of_transformers():
    differences = run_on("jax", PROGRAM)
    assert differences.keys() == set(NAMES)
    assert {k: d for k, d in differences.items() if d > TOLERANCE} == {}
