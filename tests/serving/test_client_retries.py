"""Retries of the clients: which failures, which pauses, which limits."""

import concurrent.futures
import contextlib
import http.server
import json
import socket
import threading
import time

import grpc
import pytest
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from serving.client import ClientError, GrpcClient, RestClient
from serving.client.retries import with_retries

GOOD = json.dumps({"outputs": {"translation": ["b"], "score": [-1.5]}}).encode()


@contextlib.contextmanager
def rest_server(*script):
    """Answer the n-th request by the n-th step of a script; yield the URL and the times."""
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            seen.append(time.monotonic())
            step = script[min(len(seen), len(script)) - 1]
            if callable(step):
                step(self)
                return
            body = GOOD if step == 200 else json.dumps({"error": f"no {step}"}).encode()
            answer(self, step, body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/models/m", seen
    finally:
        server.shutdown()
        server.server_close()


def answer(handler, status, body, announced=None):
    handler.send_response(status)
    handler.send_header("Content-Length", str(announced or len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def reset(handler):
    """Close the connection before the answer."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    handler.connection.close()


def half(handler):
    """Close the connection in the middle of the answer."""
    answer(handler, 200, GOOD[:9], len(GOOD))


def trickle(handler):
    """Send single bytes without end, so that no single wait is long."""
    handler.send_response(200)
    handler.end_headers()
    with contextlib.suppress(OSError):
        while True:
            handler.wfile.write(b" ")
            time.sleep(0.05)


def stall(handler):
    time.sleep(1.5)


@pytest.fixture
def no_pauses(monkeypatch):
    monkeypatch.setattr("serving.client.retries.time.sleep", lambda seconds: None)


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize(
    "script",
    [[503, 200], [429, 503, 200], [reset, 200], [half, 200], [reset, 429, half, 503, 200]],
)
def test_passing_failures_are_retried(script):
    with rest_server(*script) as (url, seen):
        assert RestClient(url).translate(["a"]) == [("b", -1.5)]
        assert len(seen) == len(script)


@pytest.mark.parametrize("status", [400, 404, 413, 500, 501, 504])
def test_lasting_failures_are_not_retried(status):
    with rest_server(status) as (url, seen):
        with pytest.raises(ClientError) as info:
            RestClient(url).translate(["a"])
        assert str(info.value) == f"{url} answered {status}: no {status}"
        assert len(seen) == 1 and not info.value.is_retryable


@pytest.mark.usefixtures("no_pauses")
def test_the_error_names_the_number_of_attempts():
    with rest_server(503) as (url, seen):
        with pytest.raises(ClientError) as info:
            RestClient(url, retries=2).translate(["a"])
        assert str(info.value) == f"{url} answered 503: no 503 (3 attempts)"
        assert len(seen) == 3
        with pytest.raises(ClientError, match="no 503$"):
            RestClient(url, retries=0).translate(["a"])
        assert len(seen) == 4


@pytest.mark.parametrize("step", [503, trickle, stall])
def test_the_timeout_covers_all_attempts(step):
    with rest_server(step) as (url, _):
        start = time.monotonic()
        with pytest.raises(ClientError):
            RestClient(url, timeout=0.6, retries=1000).translate(["a"])
        assert time.monotonic() - start < 1.4


def test_pauses_double_up_to_five_seconds_and_vary(monkeypatch):
    pauses = []
    monkeypatch.setattr("serving.client.retries.time.sleep", pauses.append)

    def refuse(limit):
        raise ClientError("no", is_retryable=True)

    runs = []
    for _ in range(5):
        with pytest.raises(ClientError, match=r"no \(9 attempts\)"):
            with_retries(refuse, 1000, 8)
        runs.append(tuple(pauses))
        pauses.clear()
    longest = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    for run in runs:
        assert len(run) == 8
        assert all(most / 2 <= pause <= most for pause, most in zip(run, longest, strict=True))
    assert len(set(runs)) == 5


def test_a_server_of_another_protocol_is_reported():
    def garbage(handler):
        handler.wfile.write(b"SSH-2.0-x\r\n")

    with rest_server(garbage) as (url, seen):
        with pytest.raises(ClientError, match="is not the address of a served model"):
            RestClient(url).translate(["a"])
        assert len(seen) == 1
    with rest_server(lambda handler: answer(handler, 200, b"<html>")) as (url, _):
        with pytest.raises(ClientError, match="is not the address of a served model"):
            RestClient(url).translate(["a"])


@pytest.mark.parametrize(
    "outputs",
    [
        {"translation": ["b", "c"]},
        {"translation": ["b"], "score": [0.1, 0.2]},
        {"translation": 5},
        {"translation": ["b"], "x_bytes": ["b"]},
        {"translation": ["b"], "x_bytes": [{"b64": "b"}]},
    ],
)
def test_an_answer_of_the_wrong_form_raises_a_client_error(outputs):
    body = json.dumps({"outputs": outputs}).encode()
    with rest_server(lambda handler: answer(handler, 200, body)) as (url, _):
        with pytest.raises(ClientError, match="did not answer each text|cannot be sent or read"):
            RestClient(url).translate(["a"])


def test_headers_are_sent_and_complete_reads_continuations():
    def check(handler):
        token = handler.headers["Authorization"]
        answer(handler, 200, json.dumps({"outputs": {"continuation": [token]}}).encode())

    with rest_server(check) as (url, _):
        client = RestClient(url, headers={"Authorization": "Bearer x"})
        assert client.complete(["a"]) == [("Bearer x", None)]
        with pytest.raises(ClientError, match="no output named translation"):
            client.translate(["a"])


class Scripted(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Script of a gRPC server: a status code is an error, None an answer."""

    def __init__(self, *script):
        self.script, self.seen, self.headers = script, 0, None

    def GetModelMetadata(self, request, context):
        signatures = get_model_metadata_pb2.SignatureDefMap()
        signatures.signature_def["serving_default"].inputs["text"].dtype = 7
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.metadata["signature_def"].Pack(signatures)
        return response

    def Predict(self, request, context):
        self.seen += 1
        self.headers = dict(context.invocation_metadata())
        step = self.script[min(self.seen, len(self.script)) - 1]
        if step is not None:
            context.abort(step, f"no {step.name}")
        response = predict_pb2.PredictResponse()
        response.outputs["translation"].CopyFrom(request.inputs["text"])
        return response


@contextlib.contextmanager
def grpc_server(servicer, port=0):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


@pytest.mark.usefixtures("no_pauses")
def test_grpc_retries_passing_failures_and_sends_headers():
    codes = grpc.StatusCode
    servicer = Scripted(codes.UNAVAILABLE, codes.RESOURCE_EXHAUSTED, codes.CANCELLED, None)
    with grpc_server(servicer) as address:
        with GrpcClient(address, headers={"Authorization": "Bearer x"}) as client:
            assert client.translate(["a"]) == [("a", None)]
    assert servicer.seen == 4 and servicer.headers["authorization"] == "Bearer x"


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "NOT_FOUND", "INTERNAL", "UNIMPLEMENTED"])
def test_grpc_does_not_retry_lasting_failures(code):
    servicer = Scripted(grpc.StatusCode[code])
    with grpc_server(servicer) as address, GrpcClient(address) as client:
        with pytest.raises(ClientError, match=f"answered {code}: no {code}$"):
            client.translate(["a"])
    assert servicer.seen == 1


def test_retries_find_a_server_that_starts_later():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    client = GrpcClient(f"127.0.0.1:{port}", retries=9)
    with client, concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.translate, ["b"])
        time.sleep(0.3)
        with grpc_server(Scripted(None), port):
            assert asked.result(30)[0].text == "b"
    with pytest.raises(ClientError, match=r"\(2 attempts\)"):
        RestClient(f"http://127.0.0.1:{port}/v1/models/m", retries=1).translate(["a"])
