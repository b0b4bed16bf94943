"""Scripts in processes of their own, for what is fixed when TensorFlow starts."""

import json
import os
from pathlib import Path

from fork_server import ROOT, run_python

SUPPORT = Path(__file__).resolve().parent


def result_of(*arguments):
    """Return the last line that a script prints, read as JSON; arguments as the interpreter's."""
    path = f"{SUPPORT}{os.pathsep}{ROOT}"
    done = run_python(*arguments, environment={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
