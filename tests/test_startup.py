"""Start of a program: Keras is imported late, our classes are known, and no log is printed."""

import os
import subprocess
import sys
import time

import pytest
from fork_server import ROOT, run_python

import keras_attn

# A program of this package that imports neither Keras nor NumPy.
HEAD = "import sys; sys.argv = ['keras-attn']\nimport os\nfrom keras_attn import startup\n"
LOG = """
startup.leave_out_log_lines()
os.write(2, b"I0000 00:00:1795.4 131 port.cc:153] oneDNN operations are on.\\n")
os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called are\\n")
os.write(2, b"2026-01-02 03:04:05.6: W tensorflow/a.cc:3] Some\\n")
os.write(2, b"a sentence of ours\\nnormalizer.cc(51) LOG(INFO) precompiled_charsmap is empty.\\n")
os.write(2, b"an end")
"""


def run(program):
    """Run a program in a new interpreter; return its status and error."""
    command = [sys.executable, "-c", HEAD + program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stderr


def test_lines_of_a_log_are_left_out_and_others_stay():
    assert run(LOG + "os.write(2, b' of it')") == (0, "a sentence of ours\nan end of it")


def test_nothing_is_lost_where_the_process_crashes():
    status, said = run(LOG + "os.abort()")
    assert status < 0 and said == "a sentence of ours\nan end"


def test_the_traceback_of_a_failed_import_is_printed():
    status, said = run(LOG + "import no_such_module")
    assert status == 1 and said.startswith("a sentence of ours\nan end")
    assert said.endswith("No module named 'no_such_module'\n") and "Traceback" in said


def test_a_process_that_keeps_the_error_open_delays_nothing():
    child = "import subprocess; subprocess.Popen(['sleep', '40'], stdout=subprocess.DEVNULL)"
    start = time.monotonic()
    assert run(LOG + child) == (0, "a sentence of ours\nan end")
    assert time.monotonic() - start < 30


def test_a_signal_to_the_whole_group_ends_no_copy():
    program = "import signal\nfor name in ('SIGINT', 'SIGTERM', 'SIGHUP'):\n"
    program += "    signal.signal(getattr(signal, name), signal.SIG_IGN)\n"
    program += "os.setsid()\n" + LOG + "import time; time.sleep(0.3)\n"
    program += "os.killpg(0, signal.SIGTERM)\ntime.sleep(0.1)\nprint(' of it', file=sys.stderr)"
    assert run(program) == (0, "a sentence of ours\nan end of it\n")


def test_a_closed_error_is_no_error():
    assert run("os.close(2)\nstartup.leave_out_log_lines()")[0] == 0


LOAD = "model = keras.models.load_model({!r}); assert type(model).__name__ == 'Classifier'\n"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The file of a small model."""
    path = tmp_path_factory.mktemp("model") / "model.keras"
    sizes = {"num_layers": 1, "num_heads": 1, "hidden_dim": 2, "intermediate_dim": 3}
    keras_attn.models.vit(num_classes=2, image_shape=(4, 4, 1), patch_size=2, **sizes).save(path)
    return str(path)


def test_a_file_loads_where_keras_is_imported_first(file):
    done = run_python("-c", "import keras\nimport keras_attn\n" + LOAD.format(file))
    assert done.returncode == 0, done.stderr


def test_a_program_knows_all_classes_once_it_has_started(file):
    program = "startup.import_library()\nimport keras\n"
    done = run_python("-c", HEAD + program + LOAD.format(file))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("first", ["keras_attn", "keras_attn.norms"])
def test_a_file_loads_where_keras_is_imported_last(first, file):
    done = subprocess.run(
        [sys.executable, "-c", f"import {first}\nimport keras\n" + LOAD.format(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_program_prints_no_log_of_tensorflow():
    program = "startup.import_library()\nimport tensorflow as tf\n"
    program += "tf.function(lambda x: x + 1, jit_compile=True)(tf.ones(3))"
    assert run(program) == (0, "")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("tensorflou", "must be one of tensorflow, jax, torch. Received: KERAS_BACKEND=tensorflou"),
        ("torch", "The backend of KERAS_BACKEND=torch is not installed: pip install torch"),
    ],
)
def test_a_backend_that_is_not_there_is_refused_before_keras_is_imported(name, sentence):
    hidden = "import importlib.util; importlib.util.find_spec = lambda name: None\n"
    program = hidden + f"os.environ['KERAS_BACKEND'] = '{name}'\nstartup.import_library()"
    status, said = run(program)
    assert status == 1 and sentence in said and "keras/src" not in said


def test_a_recipe_says_in_one_line_that_there_is_no_such_backend(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "keras_attn", "translate", "--out", tmp_path / "run"],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": "tensorflou"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("keras-attn translate: The variable KERAS_BACKEND must be one of")


def test_a_part_is_imported_by_its_first_use():
    """A stand-in for a slow part has the name of the part."""
    program = """
import keras_attn
assert 'keras' not in sys.modules
sys.modules['keras_attn.norms'] = norms = object()
assert keras_attn.norms is norms
"""
    assert run(program) == (0, "")


def test_all_names_are_listed_and_imported_by_a_star():
    names = {}
    exec("from keras_attn import *", names)
    assert set(dir(keras_attn)) == set(keras_attn.__all__) == names.keys() - {"__builtins__"}
