"""Python in a process of its own, for what is fixed when TensorFlow starts."""

import json
import os
import socket
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


def cluster(number):
    """The TF_CONFIG of each of so many processes, at free ports of this machine."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(number)]
    workers = [f"localhost:{free.getsockname()[1]}" for free in sockets]
    for free in sockets:
        free.close()
    tasks = [{"type": "worker", "index": index} for index in range(number)]
    return [json.dumps({"cluster": {"worker": workers}, "task": task}) for task in tasks]
