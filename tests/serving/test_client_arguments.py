"""Arguments that the clients refuse; no server runs."""

import pytest
from tensorflow.core.framework.tensor_pb2 import TensorProto

from serving import client as clients
from serving.client import __main__ as command_line
from serving.client.tensors import write_tensor


@pytest.fixture(params=["rest", "grpc"])
def make(request):
    """Function that makes a client of either API."""
    if request.param == "rest":
        return lambda **options: clients.RestClient("http://127.0.0.1:9/v1/models/toy", **options)
    return lambda **options: clients.GrpcClient("127.0.0.1:9", "toy", **options)


@pytest.mark.parametrize(
    "options", [{"timeout": 0}, {"timeout": "5"}, {"retries": -1}, {"retries": None}]
)
def test_wrong_timeout_and_retries_are_refused(make, options):
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=f"`{name}` must .* Received: {name}={value!r}"):
        make(**options)


@pytest.mark.parametrize("value, dtype", [(10**400, 1), (2**70, 9)], ids=["float32", "int64"])
def test_a_number_too_large_for_its_type_is_refused(value, dtype):
    with pytest.raises(clients.ClientError, match="The input x must be"):
        write_tensor(TensorProto(), "x", [value], dtype)


def test_the_length_of_a_stream_needs_one(capsys):
    with pytest.raises(SystemExit):
        command_line.main(["--url", "http://127.0.0.1:9/v1/models/toy", "--max_tokens", "3", "a"])
    assert "--max_tokens is for --stream" in capsys.readouterr().err


@pytest.mark.parametrize("headers", ["Authorization", {"a": 1}, {"a b": "c"}, {"a": "hidden\n"}])
def test_wrong_headers_are_refused_without_their_value(make, headers):
    with pytest.raises(ValueError, match="`headers` must be") as info:
        make(headers=headers)
    assert "hidden" not in str(info.value)


@pytest.mark.parametrize(
    "url",
    [
        None,
        "",
        "a",
        "http://127.0.0.1:18601",
        "http://127.0.0.1:x/v1/models/a",
        "127.0.0.1:18601/v1/models/a",
        "localhost:18601/v1/models/a",
        "http://127.0.0.1:18601/v1/models/a?version=1",
    ],
)
def test_a_wrong_url_is_refused(url):
    with pytest.raises(ValueError, match="`url` must be a model's address, http://HOST:PORT") as e:
        clients.RestClient(url)
    assert repr(url) in str(e.value)


@pytest.mark.parametrize(
    "arguments, options, words",
    [
        ((None,), {}, "`address` must be HOST:PORT"),
        (("",), {}, "`address` must be HOST:PORT"),
        (("http://127.0.0.1:9",), {}, "`address` must be HOST:PORT"),
        (("127.0.0.1:9", 5), {}, "`model_name` must be a string. Received: model_name=5"),
        (("127.0.0.1:9",), {"version": "x"}, "`version` must be a whole number"),
        (("127.0.0.1:9",), {"version": 2**63}, "`version` must be a whole number"),
        (("127.0.0.1:9",), {"label": 7}, "`label` must be a string. Received: label=7"),
        (("127.0.0.1:9",), {"version": 1, "label": "a"}, "not both"),
    ],
)
def test_wrong_grpc_arguments_are_refused(arguments, options, words):
    with pytest.raises(ValueError, match=words):
        clients.GrpcClient(*arguments, **options)


class Remembering(clients.Client):
    """Client of a model whose memory is empty."""

    def _predict(self, inputs, signature_name, limit):
        return {"memory": []} if signature_name == "initial_memory" else inputs


@pytest.mark.parametrize("segment", [{}, {"token_ids": [5]}, {"token_ids": [[5]], "states": [[6]]}])
def test_a_session_step_without_rows_is_refused(segment):
    session = Remembering("m", 1, 0).session()
    assert session.step(token_ids=[[5, 7]]) == {"token_ids": [[5, 7]], "lengths": [2]}
    with pytest.raises(clients.ClientError, match="reads rows of `token_ids` or of `states`"):
        session.step(**segment)


class Steps(clients.Client):
    """A served model that refuses texts, or is too busy for any."""

    def __init__(self, names, is_retryable=False):
        super().__init__("server", retries=0)
        self.names, self.is_retryable = names, is_retryable

    def _predict(self, inputs, signature_name, limit):
        raise clients.ClientError("no text is read", self.is_retryable)

    def _signature_names(self, limit):
        if self.names is None:
            raise clients.ClientError("no metadata")
        return self.names


@pytest.mark.parametrize(
    "model, message",
    [
        (
            Steps(["step", "initial_memory"]),
            "server .* --url on the command line, or `session`.",
        ),
        (Steps(["step", "initial_state"]), "server .*: use `stream` of a .* the command line."),
        (Steps(["serving_default"]), "no text is read"),
        (Steps(None), "no text is read"),
        (Steps(["step"], is_retryable=True), "no text is read"),
    ],
)
def test_an_export_that_answers_step_by_step_says_what_fits(model, message):
    for write in (model.complete, model.translate):
        with pytest.raises(clients.ClientError, match=f"^{message}$"):
            write(["a"])
