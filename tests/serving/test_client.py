"""The command-line client."""

import subprocess
import sys

import pytest

from serving.client import main

TEXTS = ["one", "zwei drei", "四"]


@pytest.fixture
def url(server):
    return f"http://{server.host}:{server.rest_port}/v1/models"


def test_one_translation_per_line(server, url, run_module, capsys):
    expected = "".join(f"00000007:{text}\n" for text in TEXTS)
    over_rest = run_module("serving.client", "--url", f"{url}/toy", *TEXTS)
    assert (over_rest.returncode, over_rest.stdout, over_rest.stderr) == (0, expected, "")
    address = f"{server.host}:{server.grpc_port}"
    assert main(["--grpc", address, "--model_name", "toy", *TEXTS]) == 0
    assert capsys.readouterr().out == expected


def test_an_unknown_model_is_one_sentence(url, capsys):
    assert main(["--url", f"{url}/nope", "a"]) == 1
    assert capsys.readouterr() == (
        "",
        f"serving.client: {url}/nope answered 404: Servable not found for request: Latest(nope)\n",
    )


@pytest.mark.parametrize(
    "where",
    [
        ["--url", "http://127.0.0.1:9/v1/models/a"],
        ["--url", "a"],
        ["--grpc", "127.0.0.1:9", "--timeout=5"],
    ],
)
def test_no_server_is_one_sentence(capsys, where):
    assert main([*where, "a"]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("serving.client: ")
    assert output.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["a"], ["--url", "http://a"]])
def test_usage(arguments):
    with pytest.raises(SystemExit) as info:
        main(arguments)
    assert info.value.code == 2


def test_the_rest_client_needs_only_the_standard_library():
    code = (
        "import sys; import serving.client\n"
        "print(sorted({'tensorflow', 'keras', 'grpc', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
