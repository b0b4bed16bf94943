"""Python in a process of its own, for what is fixed when TensorFlow starts."""

import json
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent


def result_of(*arguments):
    """What a script prints last, as JSON: arguments as the interpreter's."""
    path = f"{TESTS}{os.pathsep}{TESTS.parent}"
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "KERAS_BACKEND": "tensorflow", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
