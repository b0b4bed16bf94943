"""Commands of the library read their arguments before they import Keras."""

import os
import subprocess
import sys

import pytest
from fork_server import ROOT

COMMANDS = [
    *("keras_attn.catalogue", "keras_attn.export", "keras_attn.export saved_model"),
    "keras_attn.viz",
]


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


@pytest.mark.parametrize("command", [*COMMANDS, "recipes.results", "recipes.translate"])
def test_help_answers_before_keras_is_imported(command):
    status, said, _ = run_lightly(*command.split(), "--help")
    assert status == 0 and said.startswith(f"usage: python -m {command}")


def test_a_missing_file_is_reported_before_keras_is_imported(tmp_path):
    status, _, error = run_lightly("keras_attn.export", "onnx", "none.keras", f"{tmp_path}/out")
    assert status == 2 and "model's file does not exist" in error
    _, _, error = run_lightly("recipes.results", "none.json")
    assert error == "recipes.results: none.json: No such file or directory\n"


COMPARE = """
import importlib, sys

sys.argv, sys.orig_argv = ["-m"], ["python", "-m", "keras_attn.export"]
import keras_attn.export

assert "keras" not in sys.modules and not hasattr(keras_attn.export, "onnx")
sys.argv = ["command"]
from keras_attn.deferred_imports import complete

complete("keras_attn", "keras_attn.export")
import keras

assert set(keras_attn.export.__all__) <= set(vars(keras_attn.export))
eager = set(keras_attn.__all__) - set(keras_attn._LAZY)
assert eager <= set(vars(keras_attn)), eager
assert "keras_attn>MultiHeadAttention" in keras.saving.get_custom_objects()
"""


@pytest.mark.slow
def test_a_command_has_all_packages_after_it_has_read_its_arguments():
    """Classes of a model's file are known by their packages."""
    done = subprocess.run([sys.executable, "-c", COMPARE], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_another_program_imports_all_packages(tmp_path):
    """Its own package may import this one, and load a model next."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "__init__.py").write_text("import keras_attn\n")
    (tmp_path / "other" / "__main__.py").write_text("import sys; print('keras' in sys.modules)\n")
    done = subprocess.run(
        [sys.executable, "-m", "other"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "True\n", done.stderr
