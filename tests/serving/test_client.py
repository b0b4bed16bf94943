"""Clients on a server, over REST and over gRPC, and their command line."""

import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

from serving import client as clients
from serving.client.__main__ import main

ROOT = pathlib.Path(__file__).parents[2]
TEXTS = ["one", "zwei drei", "四"]
VERSION = "00000007"


@pytest.fixture
def url(server):
    return f"http://{server.host}:{server.rest_port}/v1/models"


@pytest.fixture(params=["rest", "grpc"])
def connect(request, server, url):
    """Function that makes a client of the toy model, over either API."""

    def make(**options):
        if request.param == "rest":
            return clients.RestClient(f"{url}/toy", **options)
        return clients.GrpcClient(f"{server.host}:{server.grpc_port}", "toy", **options)

    return make


@pytest.fixture
def client(connect):
    with connect() as made:
        yield made


def test_translate_answers_each_text(client):
    answers = client.translate(TEXTS)
    assert [answer.text for answer in answers] == [f"{VERSION}:{text}" for text in TEXTS]
    scores = [-len(text.encode()) / 10 for text in TEXTS]
    np.testing.assert_allclose([answer.score for answer in answers], scores, rtol=1e-6)
    assert client.translate([]) == []
    long = "\U0001f600" * 10_000
    assert client.translate(iter([long]))[0].text == f"{VERSION}:{long}"


def test_numbers_of_every_dtype_keep_their_value(client):
    outputs = client.predict({"a": [0.5, -1], "b": (3, 4)}, "numbers")
    assert outputs == {"sum": [3.5, 3.0], "twice": [6, 8]}
    ends = {
        "double": [0.1, 5e-324, 1.7976931348623157e308],
        "long": [-(2**63), 0, 2**63 - 1],
        "byte": [0, 7, 255],
        "flag": [True, False, True],
    }
    flags = [not flag for flag in ends["flag"]]
    answer = client.predict(ends, "types")
    assert answer == {**ends, "flag": flags}
    assert set(map(type, answer["flag"])) == {bool}
    arrays = {
        "double": np.array(ends["double"]),
        "long": np.array(ends["long"]),
        "byte": np.array(ends["byte"], np.uint8),
        "flag": np.array(ends["flag"]),
    }
    assert client.predict(arrays, "types") == {**ends, "flag": flags}


@pytest.mark.parametrize("shape", [(), (2, 0), (2, 3, 5)])
def test_a_float32_keeps_its_bits(client, shape):
    bits = np.random.default_rng(5).integers(0, 2**32, shape, np.uint32)
    sent = np.array(bits).view(np.float32)
    sent = np.where(np.isnan(sent), np.float32(1), sent)
    for value in (sent, sent.tolist()):
        received = np.array(client.predict({"x": value}, "echo")["y"], np.float32)
        assert received.shape == shape
        np.testing.assert_array_equal(received.view(np.uint32), sent.view(np.uint32))
    not_numbers = [float("nan"), float("inf"), -float("inf")]
    received = client.predict({"x": not_numbers}, "echo")["y"]
    np.testing.assert_array_equal(received, not_numbers)


def test_a_single_output_has_its_name(client):
    assert client.predict({"x": [1.0, 2.5]}, "total") == {"total": 3.5}


def test_outputs_named_bytes_are_bytes_and_others_text(client):
    assert client.predict({"x": [b"\xff\x00", "ä"]}, "as_bytes") == {
        "x_bytes": [b"\xff\x00", "ä".encode()]
    }
    assert client.predict({"x": ["ä", b"b"]}, "as_text") == {"x": ["ä", "b"]}


@pytest.mark.parametrize(
    "inputs, signature, words",
    [
        ({"x": [[1.0], [2.0, 3.0]]}, "echo", "input|size"),
        ({"b": [0.5], "a": [1.0]}, "numbers", "int"),
        ({"b": [2**40], "a": [1.0]}, "numbers", "int"),
        ({"a": [1.0]}, "numbers", "b"),
        ({"text": ["a"], "other": [1]}, "numbers", "other|input"),
        ({"x": [0.0]}, "fails", "not positive"),
        ({"x": ["a"]}, "missing", "missing"),
    ],
)
def test_refused_inputs_raise_one_sentence_and_are_not_retried(
    client, inputs, signature, words, monkeypatch
):
    monkeypatch.setattr("serving.client.retries.time.sleep", lambda seconds: None)
    with pytest.raises(clients.ClientError, match=words) as info:
        client.predict(inputs, signature)
    assert not info.value.is_retryable and "\n" not in str(info.value)
    assert client.address in str(info.value) or "input" in str(info.value)


def test_inputs_that_cannot_be_sent_raise_a_client_error(client, connect):
    for texts in ("abc", 5):
        with pytest.raises(clients.ClientError, match=f"of strings. Received: texts={texts!r}"):
            client.translate(texts)
    with pytest.raises(clients.ClientError, match="no output named continuation"):
        client.complete(["a"])
    in_itself = []
    in_itself.append(in_itself)
    for value in (object(), [object()], ["\udcff"], in_itself):
        signature = "as_text" if value == ["\udcff"] else "echo"
        with pytest.raises(clients.ClientError):
            client.predict({"x": value}, signature)
    for question in (({"\udcff": [1.0]}, "echo"), ({"x": [1.0]}, "\udcff")):
        with pytest.raises(clients.ClientError):
            client.predict(*question)
    for question in ((5,), ({"x": [1.0]}, 5)):
        with pytest.raises(clients.ClientError, match="must be .* Received: 5"):
            client.predict(*question)


def test_a_closed_client_raises_a_client_error(server):
    client = clients.GrpcClient(f"{server.host}:{server.grpc_port}", "toy")
    client.close()
    with pytest.raises(clients.ClientError, match="cannot send: .* closed"):
        client.translate(["a"])


def test_an_infinite_timeout_works(connect):
    with connect(timeout=float("inf")) as client:
        assert client.translate(["a"])[0].text == f"{VERSION}:a"


def test_the_grpc_port_as_rest_address_is_reported(server):
    client = clients.RestClient(f"http://{server.host}:{server.grpc_port}/v1/models/toy")
    with pytest.raises(clients.ClientError, match="is not HTTP; is it the port of gRPC") as info:
        client.translate(["a"])
    assert str(info.value).isprintable()


def test_model_names_beyond_ascii_are_sent(url):
    """The server's error names the model."""
    client = clients.RestClient(f"{url}/modèle 1")
    with pytest.raises(clients.ClientError, match=r"answered 404: .*Latest\(modèle 1\)"):
        client.translate(["a"])


def test_a_timeout_ends_a_call(connect):
    with connect(timeout=0.1) as client:
        with pytest.raises(clients.ClientError, match="did not answer within 0.1 seconds"):
            client.predict({"steps": [200_000]}, "slow")


def test_a_version_or_a_label_can_be_chosen(server, url):
    address = f"{server.host}:{server.grpc_port}"
    for good, bad in (
        (
            clients.RestClient(f"{url}/toy/versions/7"),
            clients.RestClient(f"{url}/toy/versions/8"),
        ),
        (
            clients.GrpcClient(address, "toy", version=7),
            clients.GrpcClient(address, "toy", version=8),
        ),
    ):
        with good, bad:
            assert good.translate(["a"])[0].text == f"{VERSION}:a"
            with pytest.raises(clients.ClientError, match=r"Specific\(toy, 8\)"):
                bad.translate(["a"])
    with clients.GrpcClient(address, "toy", label="canary") as labelled:
        with pytest.raises(clients.ClientError, match="label: canary"):
            labelled.translate(["a"])


@pytest.mark.slow
def test_the_command_line_prints_one_translation_per_line(server, url, run_module, capsys):
    expected = "".join(f"{VERSION}:{text}\n" for text in TEXTS)
    over_rest = run_module("serving.client", "--url", f"{url}/toy", *TEXTS)
    assert (over_rest.returncode, over_rest.stdout, over_rest.stderr) == (0, expected, "")
    address = f"{server.host}:{server.grpc_port}"
    assert main(["--grpc", address, "--model_name", "toy", *TEXTS]) == 0
    assert capsys.readouterr().out == expected
    assert main(["--url", f"{url}/toy", "--score", "one"]) == 0
    score, text = capsys.readouterr().out.split("\t")
    assert (float(score), text) == (pytest.approx(-0.3), f"{VERSION}:one\n")


def test_an_unknown_model_is_reported_in_one_sentence(url, capsys):
    assert main(["--url", f"{url}/nope", "a"]) == 1
    assert capsys.readouterr() == (
        "",
        f"keras-attn ask: {url}/nope answered 404: Servable not found for request: Latest(nope)\n",
    )


@pytest.mark.parametrize(
    "where",
    [
        ["--url", "http://127.0.0.1:9/v1/models/a"],
        ["--url", "a"],
        ["--url", ""],
        ["--grpc", ""],
        ["--grpc", "127.0.0.1:9", "--timeout=5"],
        ["--url", "http://127.0.0.1:9/v1/models/a", "--retries=-1"],
    ],
)
def test_a_missing_server_is_reported_in_one_sentence(capsys, monkeypatch, where):
    monkeypatch.setattr("serving.client.retries.time.sleep", lambda seconds: None)
    assert main([*where, "a"]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("keras-attn ask: ")
    assert output.err.count("\n") == 1


def test_a_full_disk_is_reported_in_one_sentence(url, monkeypatch, capsys):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr("sys.stdout", full)
        assert main(["--url", f"{url}/toy", "one"]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("keras-attn ask: The answers cannot be written: ")
    assert printed.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [[], ["a"], ["--url", "http://a"], ["--url", "http://a/b", "--model_name", "c", "d"]],
)
def test_wrong_usage_exits_with_code_two(arguments):
    with pytest.raises(SystemExit) as info:
        main(arguments)
    assert info.value.code == 2


def test_a_copied_client_folder_needs_no_package_for_rest(url, tmp_path):
    folder = clients.__path__[0]
    shutil.copytree(folder, tmp_path / "ask", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        # -S: without the folder of installed packages.
        [sys.executable, "-S", "-m", "ask", "--url", f"{url}/toy", "one"],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{VERSION}:one\n", "")


@pytest.mark.slow
def test_the_grpc_client_imports_no_tensorflow(server):
    code = """
import sys
from serving.client import GrpcClient
with GrpcClient(sys.argv[1], "toy") as client:
    print(client.translate(["one"])[0].text)
print(sorted({"tensorflow", "keras", "numpy", "tensorflow_serving"} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, f"{server.host}:{server.grpc_port}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"{VERSION}:one\n[]\n", done.stderr
