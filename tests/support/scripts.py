"""Scripts in processes of their own, for what is fixed when TensorFlow starts."""

import json
import os
import socket
from pathlib import Path

from fork_server import ROOT, run_python

SUPPORT = Path(__file__).resolve().parent


def result_of(*arguments):
    """Return the last line that a script prints, read as JSON; arguments as the interpreter's."""
    path = f"{SUPPORT}{os.pathsep}{ROOT}"
    done = run_python(*arguments, environment={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def cluster(number):
    """Return the TF_CONFIG of each of `number` processes, at free ports of this machine."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(number)]
    workers = [f"localhost:{free.getsockname()[1]}" for free in sockets]
    for free in sockets:
        free.close()
    tasks = [{"type": "worker", "index": index} for index in range(number)]
    return [json.dumps({"cluster": {"worker": workers}, "task": task}) for task in tasks]
