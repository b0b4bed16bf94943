"""Programs of the fork server behave as in a new interpreter."""

import json
import os
import signal
import subprocess
import sys

import pytest
from fork_server import ForkedPython, run_python
from other_backend import needs_jax


def test_a_program_prints_and_ends_with_its_code():
    code = "import sys; print(sys.argv[1:], __name__); print('bad', file=sys.stderr); sys.exit(7)"
    done = run_python("-c", code, "a", 3)
    assert (done.stdout, done.stderr) == ("['a', '3'] __main__\n", "bad\n")
    assert done.returncode == 7


def test_programs_share_no_state():
    code = "import keras, os; print(getattr(keras, 'left', None), os.environ.get('LEFT'))"
    run_python("-c", "import keras, os; keras.left = 1; os.environ['LEFT'] = '1'")
    assert run_python("-c", code).stdout == "None None\n"
    environment = {**os.environ, "LEFT": "2"}
    assert run_python("-c", code, environment=environment).stdout == "None 2\n"


@pytest.mark.parametrize(
    "statement, code",
    [
        ("sys.exit()", 0),
        ("sys.exit(300)", 300 & 255),
        ("sys.exit('bad')", 1),
        ("raise ValueError('no such thing')", 1),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("os.fork() or sys.exit(7); sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))", 7),
    ],
)
def test_a_program_ends_as_in_a_new_interpreter(statement, code):
    """What it has registered for the end runs, and all that it printed arrives."""
    program = f"import atexit, os, sys; atexit.register(print, 'end', end=''); {statement}"
    done = run_python("-c", program)
    expected = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == expected.returncode == code
    assert done.stdout == expected.stdout
    assert done.stderr.splitlines()[-1:] == expected.stderr.splitlines()[-1:]


def test_scripts_and_modules_run_as_the_main_module(tmp_path):
    (tmp_path / "beside.py").write_text("value = 3")
    script = tmp_path / "script.py"
    script.write_text("import beside, sys; print(__name__, beside.value, sys.argv[1:])")
    assert run_python(script, "x").stdout == "__main__ 3 ['x']\n"
    assert run_python("-m", "script", "x", cwd=tmp_path).stdout == "__main__ 3 ['x']\n"


def test_a_signal_is_the_negative_return_code():
    process = ForkedPython("-c", "import time; print('up', flush=True); time.sleep(60)")
    assert process.stdout.readline() == "up\n"
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.05)
    process.terminate()
    assert process.wait(timeout=10) == -signal.SIGTERM


def test_the_backend_starts_after_the_fork():
    code = """
import json, keras, tensorflow as tf
devices = tf.config.list_logical_devices("CPU")
print(json.dumps([float(keras.ops.sum(keras.ops.ones(3))), len(devices)]))
"""
    done = run_python(
        "-c",
        "import tensorflow as tf\n"
        "cpu = tf.config.list_physical_devices('CPU')[0]\n"
        "two = [tf.config.LogicalDeviceConfiguration()] * 2\n"
        "tf.config.set_logical_device_configuration(cpu, two)" + code,
    )
    assert json.loads(done.stdout) == [3.0, 2], done.stderr


@pytest.mark.slow
@needs_jax
def test_programs_on_jax_are_compiled_without_most_optimizations():
    code = "import jax; print(jax.config.read('jax_disable_most_optimizations'))"
    assert run_python("-c", code, backend="jax").stdout == "True\n"
