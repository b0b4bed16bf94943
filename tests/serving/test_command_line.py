"""The server's flags, its configuration files and how it refuses to start."""

import ast
import asyncio
import dataclasses
import pathlib
import re
import socket
import threading

import pytest

import serving
from serving.config_files import read_model_configs
from serving.flags import UNSUPPORTED, parse_flags
from serving.grpc_api import GrpcApi, make_grpc_server
from serving.limits import Limits
from serving.server import check_address, load, open_socket, serve

FOLDER = pathlib.Path(serving.__file__).parent


def test_help_lists_supported_and_unsupported_flags(capsys):
    with pytest.raises(SystemExit) as info:
        parse_flags(["--help"])
    assert info.value.code == 0
    words = set(re.findall(r"\w+", capsys.readouterr().out.replace("-\n", "")))
    assert {"rest_api_port", "port", "model_name", "model_base_path", "model_config_file"} <= words
    assert set(UNSUPPORTED) <= words


@pytest.mark.point(n=17)
@pytest.mark.point(n=21)
def test_default_flags_equal_those_of_the_real_server():
    flags = parse_flags(["--model_base_path=/models"])
    assert (flags.port, flags.rest_api_port, flags.model_name) == (8500, 0, "default")
    assert (flags.rest_api_timeout_in_ms, flags.max_num_load_retries) == (30000, 5)
    assert (flags.load_retry_interval_micros, flags.file_system_poll_wait_seconds) == (
        60_000_000,
        1,
    )
    assert flags.enable_model_warmup and not flags.rest_api_enable_cors_support
    assert flags.host == "127.0.0.1" and flags.demo_page


def test_default_limits_equal_those_of_the_class():
    flags = vars(parse_flags(["--model_base_path=/models"]))
    limits = dataclasses.asdict(Limits())
    assert limits == {name: flags[name] for name in limits}


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "--model_base_path or --model_config_file is required"),
        (["--model_base_path=/m", "--port=0"], "nothing would be served"),
        (["--model_base_path=/m", "--rest_api_port=8500"], "must differ. Received: 8500"),
        (
            ["--model_base_path=/m", "--tensorflow_intra_op_parallelism=-1"],
            "an integer of at least 0 is expected. Received: -1",
        ),
        (["--model_base_path=/m", "--file_system_poll_wait_seconds=inf"], "a number of seconds"),
        (["--model_base_path=/m", "--file_system_poll_wait_seconds=-1"], "a number of seconds"),
        (["--model_base_path=/m", "--max_request_bytes=3000000000"], "integer below 2**31"),
        (["--model_base_path=/m", "--port=99999"], "a port from 0 to 65535"),
        (["--model_base_path=/m", "--enable_profiler=true"], "this server does not support"),
        (
            ["--model_base_path=/m", "--batching_parameters_file=b"],
            "without setting --enable_batch",
        ),
        (["--model_base_path=/m", "--typo=1"], "unknown argument: --typo=1"),
        (["--model_base_path=/m", "--enable_model_warmup=maybe"], "true or false is expected"),
    ],
)
def test_usage_errors_print_one_sentence(capsys, arguments, message):
    with pytest.raises(SystemExit) as info:
        parse_flags(arguments)
    assert info.value.code == 2
    printed = capsys.readouterr().err
    assert message in printed and printed.startswith("keras-attn serve: ")
    assert printed.count("\n") == 1


@pytest.mark.parametrize(
    "text, message",
    [
        ("model_config_list { config { nonsense: 1 } }", "is not a ModelServerConfig text proto"),
        ("", "must list at least one model"),
        ('model_config_list { config { name: "a" base_path: "/no/such" } }', "model a must be"),
        ('model_config_list { config { base_path: "/" } }', "with base path ./. has none"),
        (
            'model_config_list { config { name: "a" base_path: "/" } '
            'config { name: "a" base_path: "/" } }',
            "Illegal to list model a multiple times",
        ),
        (
            'model_config_list { config { name: "a" base_path: "/" '
            'version_labels { key: "" value: 1 } } }',
            "labels of model a must not be empty",
        ),
        (None, "cannot be read"),
    ],
)
def test_wrong_model_configurations_are_refused(tmp_path, text, message):
    path = tmp_path / "models.config"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_model_configs(str(path))


@pytest.mark.parametrize(
    "export, base_path, suggested",
    [
        ("run/export/7", "run", "run/export"),
        ("models/staging/1", "models", "models/staging"),
        ("models/b/1", "models/b", None),
        ("models/b/first", "models", None),  # which no server reads
    ],
)
def test_a_warning_names_the_directory_that_holds_versions(
    tmp_path, caplog, export, base_path, suggested
):
    """A base path whose versions appear later is served, whatever lies beside them."""
    (tmp_path / export).mkdir(parents=True)
    (tmp_path / export / "saved_model.pb").touch()
    (tmp_path / "models" / "a").mkdir(parents=True, exist_ok=True)
    path = str(tmp_path / base_path)
    (config,) = read_model_configs(None, "m", path)
    assert config.base_path == path
    warning = "The base path of model m holds no version; "
    warning += f"'{tmp_path / str(suggested)}' does. Received: '{path}'"
    assert caplog.messages == ([] if suggested is None else [warning])


def test_a_version_is_no_base_path(tmp_path):
    path = tmp_path / "export" / "007"
    path.mkdir(parents=True)
    (path / "saved_model.pb").touch()
    known = f"as '{path.parent}' does. Received: '{path}'"
    with pytest.raises(ValueError, match=f"The base path of model m must be .*, {known}"):
        read_model_configs(None, "m", str(path))


def test_a_missing_base_path_is_reported_in_one_sentence(run_module, tmp_path):
    done = run_module("serving.server", f"--model_base_path={tmp_path / 'missing'}")
    assert done.returncode == 2
    assert done.stderr.startswith("keras-attn serve: The base path of model default must be")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_server_whose_only_version_is_broken_exits(run_module, tmp_path):
    (tmp_path / "1").mkdir()
    done = run_module("serving.server", f"--model_base_path={tmp_path}", "--max_num_load_retries=0")
    assert done.returncode == 1
    assert "Model default did not become available: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_a_signal_while_models_load_opens_no_port(monkeypatch, caplog, tmp_path, free_port):
    (tmp_path / "1").mkdir()
    stopping = threading.Event()

    class Loaded:
        """A version; the signal comes in while it loads."""

        def __init__(self, *_):
            stopping.set()

    def no_port(*_):
        pytest.fail("opens a port")

    monkeypatch.setattr("serving.server.load", Loaded)
    monkeypatch.setattr("serving.server.gc.freeze", lambda: None)
    monkeypatch.setattr("serving.grpc_api.make_grpc_server", no_port)
    monkeypatch.setattr("serving.server.open_socket", no_port)
    flags = [f"--model_base_path={tmp_path}", "--port=0", f"--rest_api_port={free_port}"]
    with caplog.at_level("INFO"):
        serve(parse_flags(flags), stopping)
    assert "Stopped while the models were loading" in caplog.text
    assert "Serving on" not in caplog.text


def test_the_session_has_the_threads_of_the_flags(monkeypatch):
    seen = []

    def session(graph, config):
        seen.append((config.intra_op_parallelism_threads, config.inter_op_parallelism_threads))
        raise RuntimeError("enough is seen")

    monkeypatch.setattr("serving.servable.has_own_variables", lambda path: True)
    monkeypatch.setattr("serving.servable.tf.compat.v1.Session", session)
    threads = ["--tensorflow_intra_op_parallelism=2", "--tensorflow_inter_op_parallelism=3"]
    for more in (threads, []):
        with pytest.raises(RuntimeError, match="enough"):
            load(parse_flags(["--model_base_path=/m", *more]), None, "m", 1, "/m/1")
    assert seen == [(2, 3), (0, 0)]


def test_a_port_in_use_is_reported():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(OSError, match=f"127.0.0.1:{port}: Address already in use"):
            open_socket("REST", "127.0.0.1", port)

        async def start():
            make_grpc_server(GrpcApi(None, 1, Limits()), 1000, f"127.0.0.1:{port}")

        with pytest.raises(RuntimeError, match=str(port)):
            asyncio.run(start())


@pytest.mark.parametrize("api, flag", [("gRPC", "port"), ("REST", "rest_api_port")])
def test_a_wrong_address_is_reported_before_models_load(tmp_path, monkeypatch, api, flag):
    (tmp_path / "1").mkdir()
    monkeypatch.setattr("serving.server.load", lambda *_: pytest.fail("loads"))
    monkeypatch.setattr("serving.server.gc.freeze", lambda: None)

    def refusal(host, port):
        flags = {"port": 0, "rest_api_port": 0, flag: port, "host": host}
        arguments = [f"--{name}={value}" for name, value in flags.items()]
        with pytest.raises(OSError) as info:
            serve(parse_flags([f"--model_base_path={tmp_path}", *arguments]), threading.Event())
        return str(info.value)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        expected = f"{api} (--{flag}) cannot listen on 127.0.0.1:{port}: Address already in use"
        assert refusal("127.0.0.1", port) == expected
    assert refusal("no.such.host.invalid", port).startswith(
        f"{api} (--{flag}) cannot listen on no.such.host.invalid:{port}: "
    )
    # An address of documentation (RFC 5737), which no machine has.
    assert refusal("192.0.2.1", port).endswith(": Cannot assign requested address")


def test_the_address_check_releases_the_port(free_port):
    for _ in range(2):
        check_address("REST", "127.0.0.1", free_port)
    with socket.create_server(("127.0.0.1", free_port)):
        pass


def test_an_ipv6_address_works():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    check_address("gRPC", "::1", 0)
    with open_socket("REST", "::1", 0) as listener:
        assert listener.getsockname()[0] == "::1"


def test_the_server_imports_no_keras_and_little_of_keras_attn():
    """Only exports, the text of a stream, and the start of a program."""
    text = "keras_attn.text.tokenizers.incremental_decoder"
    parts = ("keras_attn.export.", text, "keras_attn.startup")
    for path in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in getattr(node, "names", [])]
            names.append(getattr(node, "module", None) or "")
            for name in names:
                assert name.split(".")[0] != "keras", path
                assert not name.startswith("keras_attn") or name.startswith(parts), path
