"""The servers to test: the one at KERAS_ATTN_SERVING_ADDRESS, or ours and the real one."""

import contextlib
import dataclasses
import http.client
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

import pytest
from fork_server import ForkedPython, run_python

for _name in ("grpc", "starlette", "tensorflow_serving", "uvicorn"):
    pytest.importorskip(_name, reason="needs pip install 'keras_attn[serving]'")

ROOT = pathlib.Path(__file__).parents[2]
ADDRESS = os.environ.get("KERAS_ATTN_SERVING_ADDRESS")
OURS, REAL = "serving.server", "tensorflow_model_server"
# Whom the tests ask: the server at the address, or ours, and the real one where it is installed.
PROGRAMS = [ADDRESS] if ADDRESS else [OURS, *filter(shutil.which, [REAL])]
MODEL = "toy"
VERSION = 7


def pytest_configure(config):
    config.addinivalue_line("markers", "point(n): a point of test_points.py that the test is about")


@dataclasses.dataclass
class Server:
    """Where a server listens, and the process if it is ours."""

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
        """Sends a path exactly as it is given; returns status, headers and the body's bytes."""
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

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def wait_for(condition, seconds=60):
    """Waits until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "gave up waiting"
        time.sleep(0.05)


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2"}


@contextlib.contextmanager
def running(log, *flags, program=OURS):
    """Our server, or a program that takes the same flags, as a process that is stopped in the end."""
    ports = free_port(), free_port()
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
        try:
            server.request("GET", "/v1/models", timeout=5)
        except OSError:
            return False
        return True

    try:
        wait_for(answers, 180)
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def toys():
    """The module that writes the toy models."""
    spec = importlib.util.spec_from_file_location(
        "toy_models", pathlib.Path(__file__).with_name("toy_models.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session", params=PROGRAMS)
def server(request, tmp_path_factory):
    """A server that has the toy model, version 7."""
    if request.param == ADDRESS:
        host, rest_port, grpc_port = ADDRESS.rsplit(":", 2)
        yield Server(host, int(rest_port), int(grpc_port))
        return
    base = tmp_path_factory.mktemp("models")
    request.getfixturevalue("toys").export(base, f"{VERSION:08d}")
    (base / "not-a-version").mkdir()
    flags = [f"--model_name={MODEL}", f"--model_base_path={base}"]
    if request.param == OURS:
        flags.append("--demo_page=false")  # which the real one does not know
    log = tmp_path_factory.mktemp("log") / "server.log"
    with running(log, *flags, program=request.param) as started:
        yield started


@pytest.fixture(scope="session")
def start_server(tmp_path_factory):
    """`running`, for tests that need a server of their own: these are about ours alone."""
    if ADDRESS:
        pytest.skip("controls the server's life, and the server is someone else's")

    def start(*flags):
        return running(tmp_path_factory.mktemp("log") / "server.log", *flags)

    return start


@pytest.fixture(scope="session")
def waiting():
    """`wait_for`."""
    return wait_for


@pytest.fixture
def run_module():
    """Runs `python -m MODULE ...` and returns the finished process, output as text."""

    def run(*arguments, timeout=60):
        return run_python("-m", *arguments, environment=environment(), timeout=timeout)

    return run
