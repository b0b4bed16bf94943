"""Commands of recipes read their arguments before they import Keras."""

import subprocess
import sys

import pytest
from fork_server import ROOT


def run_lightly(*arguments):
    """Run a command, which must not import Keras; return its status, output and error."""
    command = [sys.executable, "-X", "importtime", "-m", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    said, imported = [], set()
    for line in done.stderr.splitlines(keepends=True):
        if line.startswith("import time:"):
            imported.add(line.rpartition("|")[2].strip())
        else:
            said.append(line)
    assert "argparse" in imported and not imported & {"keras", "tensorflow", "numpy"}
    return done.returncode, done.stdout, "".join(said)


@pytest.mark.parametrize("command", ["recipes.prepare", "recipes.translate"])
def test_help_answers_before_keras_is_imported(command):
    status, said, _ = run_lightly(command, "--help")
    assert status == 0 and said.startswith(f"usage: keras-attn {command.partition('.')[2]} ")


def test_a_missing_file_is_reported_before_keras_is_imported():
    _, _, error = run_lightly("recipes.results", "none.json")
    assert error == "keras-attn results: none.json: No such file or directory\n"
