"""Running a program on a backend that is not the one of these tests."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def run_on(backend, program, *arguments):
    """What a Python program prints last, read as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
