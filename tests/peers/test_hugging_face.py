"""Converted models beside the models of the installed transformers, on other weights."""

import subprocess
import sys

import checkpoint_folders
import pytest
from fork_server import ROOT

from keras_attn.convert import from_hugging_face

pytest.importorskip("torch", reason="the peer needs torch")
pytest.importorskip("transformers", reason="the peer is transformers")

NAMES = sorted(path.stem for path in checkpoint_folders.GOLDEN.glob("*.npz"))


@pytest.fixture(scope="module")
def peers(tmp_path_factory):
    """Folder of golden files that a process without TensorFlow writes."""
    folder = tmp_path_factory.mktemp("peers")
    program = ROOT / "tests/convert/make_goldens.py"
    command = [sys.executable, program, "--seed", "1", "--out", folder]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_those_of_the_peer(name, peers, tmp_path):
    config, weights, arrays = checkpoint_folders.load_golden(name, peers)
    model, _ = from_hugging_face(checkpoint_folders.write_folder(tmp_path, config, weights))
    assert checkpoint_folders.difference(model, arrays) <= 2e-6
