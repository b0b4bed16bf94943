"""Servers under test: the one at KERAS_ATTN_SERVING_ADDRESS, or ours and the real one.

Our server with the toy model runs on a thread of the test process. Tests that stop a server, or
that need other flags, start a process each (`start_server`) and are marked slow.
"""

import importlib.util
import pathlib
import shutil
import types

import pytest

for _name in ("grpc", "starlette", "tensorflow_serving", "uvicorn"):
    pytest.importorskip(_name, reason="needs pip install 'keras_attn[serving]'")

from fork_server import run_python  # noqa: E402
from servers import (  # noqa: E402
    ADDRESS,
    MODEL,
    OURS,
    VERSION,
    Server,
    environment,
    programs,
    running,
    running_on_a_thread,
    wait_for,
)


def pytest_configure(config):
    config.addinivalue_line("markers", "point(n): a point of test_points.py that the test is about")


def pytest_collection_modifyitems(items):
    for item in items:
        if "start_server" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")


@pytest.fixture(scope="session")
def toys(tmp_path_factory):
    """Functions that write the toy models; each version is exported once, then copied."""
    spec = importlib.util.spec_from_file_location(
        "toy_models", pathlib.Path(__file__).with_name("toy_models.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = tmp_path_factory.mktemp("toys")

    def export(base_path, version, warmup=()):
        """Write `base_path/version`, which warm-up requests come with."""
        if not (folder / str(version)).exists():
            module.export(folder, version)
        unfinished = base_path / f"unfinished-{version}"
        shutil.copytree(folder / str(version), unfinished)
        if warmup:
            module.write_warmup(unfinished, warmup)
        unfinished.rename(base_path / str(version))

    return types.SimpleNamespace(
        export=export, export_small=module.export_small, write_warmup=module.write_warmup
    )


@pytest.fixture(scope="session", params=programs())
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
    log = tmp_path_factory.mktemp("log") / "server.log"
    if request.param == OURS:
        context = running_on_a_thread(log, *flags, "--demo_page=false")
    else:
        context = running(log, *flags, program=request.param)
    with context as started:
        yield started


@pytest.fixture(scope="session")
def start_server(tmp_path_factory):
    """Function that starts our server as a process, for tests that need flags or signals."""
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
    """Run `python -m MODULE ...` and return the finished process, output as text."""

    def run(*arguments, timeout=60):
        return run_python("-m", *arguments, environment=environment(), timeout=timeout)

    return run
