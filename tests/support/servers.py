"""Servers under test: one at an address, ours as a process or on a thread, and the real one."""

import concurrent.futures
import contextlib
import dataclasses
import http.client
import json
import logging
import os
import pathlib
import shutil
import signal
import subprocess
import threading
import time
from unittest import mock

from fork_server import ForkedPython

from recipes.common.machine import free_ports

ROOT = pathlib.Path(__file__).parents[2]
ADDRESS = os.environ.get("KERAS_ATTN_SERVING_ADDRESS")
OURS, REAL = "serving.server", "tensorflow_model_server"
MODEL = "toy"
VERSION = 7


def programs():
    """The servers under test: the one at the address, or ours, and the real one if installed."""
    return [ADDRESS] if ADDRESS else [OURS, *filter(shutil.which, [REAL])]


@dataclasses.dataclass
class Server:
    """Addresses of a server, and its process if it has one."""

    host: str
    rest_port: int
    grpc_port: int
    process: subprocess.Popen = None
    log: pathlib.Path = None
    program: str = None

    @property
    def is_ours(self):
        return self.program == OURS

    def request(self, method, path, body=None, headers=None, timeout=60):
        """Send a path exactly as it is given; return status, headers and the body's bytes."""
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        connection = http.client.HTTPConnection(self.host, self.rest_port, timeout=timeout)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    def json(self, method, path, body=None):
        """Status and parsed body of an answer that says it is JSON."""
        status, headers, content = self.request(method, path, body)
        assert headers["content-type"] == "application/json"
        return status, json.loads(content)

    def predict(self, body, model=MODEL):
        return self.json("POST", f"/v1/models/{model}:predict", body)

    def channel(self):
        import grpc

        return grpc.insecure_channel(
            f"{self.host}:{self.grpc_port}",
            options=[
                ("grpc.max_send_message_length", -1),
                ("grpc.max_receive_message_length", -1),
            ],
        )

    def states(self, model=MODEL):
        """Version numbers to states, from the status endpoint; empty for an unknown model."""
        status, answer = self.json("GET", f"/v1/models/{model}")
        if status == 404:
            return {}
        return {int(v["version"]): v["state"] for v in answer["model_version_status"]}

    def listens(self):
        try:
            self.request("GET", "/v1/models", timeout=5)
        except OSError:
            return False
        return True

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


def wait_for(condition, seconds=60):
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "gave up waiting"
        time.sleep(0.05)


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"}


@contextlib.contextmanager
def running(log, *flags, program=OURS):
    """Run our server, or a program that takes the same flags, as a process."""
    ports = free_ports(2)
    flags = [*flags, f"--rest_api_port={ports[0]}", f"--port={ports[1]}"]
    with open(log, "wb") as output:
        files = {"stdout": output, "stderr": subprocess.STDOUT}
        if program == OURS:
            process = ForkedPython("-m", OURS, *flags, environment=environment(), **files)
        else:
            process = subprocess.Popen([program, *flags], cwd=ROOT, env=environment(), **files)
    server = Server("127.0.0.1", *ports, process, log, program)

    def answers():
        assert process.poll() is None, log.read_text()
        # Otherwise another process may have got the port.
        return server.listens() and (program != OURS or "Serving on" in log.read_text())

    try:
        wait_for(answers, 180)
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def running_on_a_thread(log, *flags):
    """Run our server on a thread of this process."""
    from serving.flags import parse_flags
    from serving.server import serve

    ports = free_ports(2)
    flags = parse_flags([*flags, f"--rest_api_port={ports[0]}", f"--port={ports[1]}"])
    server = Server("127.0.0.1", *ports, log=log, program=OURS)
    stopping = threading.Event()
    handler = logging.FileHandler(log)
    logging.getLogger().addHandler(handler)
    with mock.patch("gc.freeze"), concurrent.futures.ThreadPoolExecutor(1) as pool:
        end = pool.submit(serve, flags, stopping)
        try:
            wait_for(lambda: end.done() or server.listens(), 180)
            if not end.done():
                yield server
        finally:
            stopping.set()
            end.result(60)
            logging.getLogger().removeHandler(handler)
