"""A server of an export as a process of its own, and its memory over time."""

import contextlib
import dataclasses
import os
import pathlib
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import numpy as np

from ..common.machine import free_ports, resident_memory

MODEL = "translate"
BATCHING = """\
max_batch_size { value: 32 }
batch_timeout_micros { value: 0 }
max_enqueued_batches { value: 1000 }
num_batch_threads { value: 1 }
"""
_START_SECONDS = 120
_FIRST_CALL = """\
import sys
import tensorflow as tf
import tensorflow_text
model = tf.saved_model.load(sys.argv[1])
print(model.signatures["serving_default"](text=tf.constant(sys.argv[2:])), flush=True)
"""


@dataclasses.dataclass
class Server:
    """Process of a server and its ports."""

    rest_port: int
    grpc_port: int
    process: subprocess.Popen

    def url(self, ending=""):
        return f"http://127.0.0.1:{self.rest_port}/v1/models/{MODEL}{ending}"


@contextlib.contextmanager
def serving(export, log, *flags, checkout=None):
    """Serve the versions in a directory until the block ends; the server prints into a log file.

    The flags are further ones of `serving.server`, of another `checkout` if its folder is given.
    """
    ports = free_ports(2)
    program = __package__.removesuffix("recipes.benchmarks") + "serving.server"
    command = [sys.executable, "-m", program, f"--model_base_path={export}"]
    command += [f"--model_name={MODEL}", f"--rest_api_port={ports[0]}", f"--port={ports[1]}"]
    start = time.perf_counter()
    place = {"cwd": checkout, "env": {**os.environ, "PYTHONPATH": checkout}} if checkout else {}
    with open(log, "wb") as output:
        command += flags
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, **place)
    server = Server(*ports, process)
    try:
        while not answers(server):
            if process.poll() is not None or time.perf_counter() > start + _START_SECONDS:
                printed = pathlib.Path(log).read_text()[-2000:]
                raise RuntimeError(f"The server does not answer. {printed}")
            time.sleep(0.01)
        yield server
    finally:
        process.terminate()
        process.wait()


def processor_seconds(pid):
    """Return the processor time of a process until now; None where the system does not tell."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def answers(server):
    """Return True if the model is available."""
    try:
        with urllib.request.urlopen(server.url(), timeout=30):
            return True
    except (urllib.error.URLError, OSError):
        return False


def first_call_seconds(version, text):
    """Measure the start of a process that loads a version without a server, to its first answer."""
    start = time.perf_counter()
    command = [sys.executable, "-c", _FIRST_CALL, version, text]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **pipes) as process:
        if not process.stdout.readline():
            raise RuntimeError(f"{version} cannot be loaded and called in a process of its own.")
        return time.perf_counter() - start


class MemoryLog:
    """Resident megabytes of a process once in so many seconds, while the block runs."""

    def __init__(self, pid, seconds=1.0):
        self.samples = []
        self._pid, self._seconds = pid, seconds
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._done.set()
        self._thread.join()

    def _watch(self):
        start = time.perf_counter()
        while True:
            megabytes = resident_memory(self._pid)
            if megabytes is not None:  # the process runs, and the system tells
                self.samples.append((round(time.perf_counter() - start, 2), round(megabytes, 2)))
            if self._done.wait(self._seconds):
                return

    def slope(self):
        """Megabytes a minute over the second half, by least squares; the first half warms up."""
        later = self.samples[len(self.samples) // 2 :]
        if len(later) < 2:
            return 0.0
        seconds, megabytes = np.array(later).T
        return float(60 * np.polyfit(seconds, megabytes, 1)[0])
