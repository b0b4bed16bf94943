"""Tokenizers of transformers give the ids of ours for the files that are written."""

import subprocess

import numpy as np
import pytest
from fork_server import ROOT
from peers import PYTHON, require

from keras_attn.convert.hugging_face.tensor_files import write_file
from keras_attn.convert.hugging_face.tokenizer import read_tokenizer
from keras_attn.convert.hugging_face.tokenizer_writer import tokenizer_files

pytestmark = pytest.mark.slow
GOLDEN = ROOT / "tests/convert/golden_ids"
NAMES = ["bert", "gpt2", "roberta", "qwen2", "llama3", "marian", "t5"]


def rows(values, lengths):
    return [row.tolist() for row in np.split(values, np.cumsum(lengths)[:-1])]


@pytest.fixture(scope="module")
def ids(tmp_path_factory):
    """Function from a name to the ids of lines and of pairs, as transformers computes them."""
    require("tokenizers", "transformers")
    out = tmp_path_factory.mktemp("tokenizers")
    for name in NAMES:
        model_type = "t5" if name == "t5" else "gpt2"
        for file, content in tokenizer_files(read_tokenizer(GOLDEN / name), model_type).items():
            write_file(out / name, file, content)
    command = [PYTHON, ROOT / "tests/peers/tokenize_lines.py", GOLDEN / "lines.npz"]
    command += [out / name for name in NAMES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]

    def ids(name):
        with np.load(out / name / "theirs.npz") as file:
            values = [*file.values()]
        return rows(*values[:2]), rows(*values[2:])

    return ids


@pytest.mark.parametrize("name", NAMES)
def test_transformers_gives_the_ids_of_the_folder_that_was_read(name, ids):
    with np.load(GOLDEN / name / "ids.npz") as file:
        values = [*file.values()]
    ours, pairs = ids(name)
    assert ours == rows(*values[:2])
    assert pairs == rows(*values[2:4])
