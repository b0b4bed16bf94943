"""Requests beyond the limits are refused with a sentence, and the server keeps serving."""

import asyncio
import concurrent.futures
import contextlib
import gzip
import http.client
import re
import socket
import time

import grpc
import numpy as np
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from serving.content_encoding import decode_body
from serving.errors import ServingError
from serving.limits import Limits
from serving.predict import is_small, run_predict_request
from serving.rest_api import RestApi
from serving.tensors import check_tensors


@pytest.fixture(scope="module")
def limited(start_server, toys, tmp_path_factory):
    base = tmp_path_factory.mktemp("limited")
    toys.export(base, 1)
    with start_server(
        "--model_name=toy",
        f"--model_base_path={base}",
        "--max_request_bytes=4000",
        "--max_json_depth=20",
        "--max_string_bytes=1000",
        "--max_rows=7",
        "--max_waiting_requests=1",
        "--rest_api_num_threads=2",
        "--grpc_max_threads=2",
        "--rest_api_timeout_in_ms=4000",
        "--enable_grpc_healthcheck_service",
    ) as server:
        yield server
        assert server.predict({"instances": ["a"]})[0] == 200, "it still serves"


def refusal(server, **inputs):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "toy"
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    with server.channel() as channel, pytest.raises(grpc.RpcError) as info:
        prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=30)
    return info.value.code().name, info.value.details()


def test_too_many_rows_are_refused(limited):
    message = "Input text must have at most 7 rows. Received: 8"
    assert limited.predict({"instances": ["a"] * 8}) == (400, {"error": message})
    assert refusal(limited, text=["a"] * 8) == ("INVALID_ARGUMENT", message)
    assert limited.predict({"instances": ["a"] * 7})[0] == 200


def test_too_long_strings_are_refused(limited):
    message = "A string of input text must have at most 1000 bytes. Received: 1001"
    assert limited.predict({"instances": ["ü" * 500 + "a"]}) == (400, {"error": message})
    assert refusal(limited, text=["a" * 1001]) == ("INVALID_ARGUMENT", message)
    assert limited.predict({"instances": ["ü" * 500]})[0] == 200


def test_too_large_requests_are_refused(limited):
    body = b'{"instances": ["a"]}'
    assert limited.predict((body + b" " * 4000)[:4000].decode())[0] == 200
    message = "The request must have at most 4000 bytes. Received: 4001 or more"
    answer = limited.predict((body + b" " * 4001)[:4001].decode())
    assert answer == (413, {"error": message})
    code, _ = refusal(limited, text=["a" * 900] * 5)
    assert code == "RESOURCE_EXHAUSTED"


@pytest.mark.parametrize("size", [5000, 2_000_000])
def test_a_small_body_with_a_large_content_is_refused(limited, size):
    body, headers = gzip.compress(b" " * size), {"Content-Encoding": "gzip"}
    small = gzip.compress(b'{"instances": ["a"]}' + b" " * 3980)
    path = "/v1/models/toy:predict"
    assert limited.request("POST", path, small, headers)[0] == 200
    status, _, answer = limited.request("POST", path, body, headers)
    assert status == 413
    match = re.search(rb"at most 4000 bytes. Received: (\d+) or more", answer)
    assert 4000 < int(match[1]) <= 1 << 16  # not all of the content was decompressed


def test_gzip_data_that_are_damaged_are_refused_in_one_sentence():
    whole = gzip.compress(b'{"instances": ["a"]}')
    assert decode_body(whole, "gzip", Limits()) == b'{"instances": ["a"]}'
    assert decode_body(b"{}", "deflate", Limits()) == b"{}"  # not read, as by the real server
    for body in (b"{}", whole[:-9], whole[:20] + b"\0" * 9, whole + b"{}", whole + whole[:-9]):
        with pytest.raises(ServingError, match="^INVALID_ARGUMENT: The body must be gzip data"):
            decode_body(body, "gzip", Limits())
    with pytest.raises(ServingError, match="at most 19 bytes. Received: 20 or more"):
        decode_body(whole, "gzip", Limits(max_request_bytes=19))


def test_gzip_data_of_several_members_are_read_to_the_end():
    content = b'{"instances": ["a", "b"]}'
    body = b"".join(gzip.compress(part) for part in (content[:9], b"", content[9:]))
    size = len(content)
    assert decode_body(body, "gzip", Limits(max_request_bytes=size)) == content
    with pytest.raises(ServingError, match=f"at most {size - 1} bytes. Received: {size} or more"):
        decode_body(body, "gzip", Limits(max_request_bytes=size - 1))


def test_connections_without_a_complete_request_are_closed(limited):
    """A partial head, no byte, a head byte by byte, a second partial head, a partial body."""
    head = b"POST /v1/models/toy:predict HTTP/1.1\r\nHost: a\r\n"
    whole = b"GET /v1/models/toy HTTP/1.1\r\nHost: a\r\n\r\n"
    sent = {"head": head, "nothing": b"", "drip": head, "second": whole, "body": head}
    sent["body"] += b"Content-Length: 9\r\n\r\n{"
    start = time.monotonic()
    with contextlib.ExitStack() as stack:
        connections = {}
        for name, content in sent.items():
            connections[name] = stack.enter_context(
                socket.create_connection((limited.host, limited.rest_port), timeout=30)
            )
            connections[name].sendall(content)
        answer = http.client.HTTPResponse(connections["second"])
        answer.begin()
        assert answer.status == 200 and answer.read()
        connections["second"].sendall(head)
        for _ in range(7):
            time.sleep(0.5)
            connections["drip"].sendall(b"a")
        assert connections["body"].recv(1000).startswith(b"HTTP/1.1 504 ")
        for name in ("head", "nothing", "drip", "second"):
            assert connections[name].recv(1000) == b""
    assert 3.9 < time.monotonic() - start < 25
    assert limited.predict({"instances": ["a"]})[0] == 200


@pytest.mark.parametrize("brackets", [("[", "]"), ('{"a":', "}"), ("[", ""), ('{"a":[', "]}")])
def test_deep_nesting_is_refused(limited, brackets):
    opening, closing = brackets
    value = opening * 30 + "1" + closing * 30
    status, answer = limited.predict(f'{{"signature_name": "echo", "inputs": {value}}}')
    assert status == 400
    assert closing == "" or "nested too deeply" in answer["error"]


def test_brackets_in_strings_do_not_count_as_depth():
    limits = Limits(max_json_depth=3)
    body = b'{"a": [[1], [2], {"b": 1}], "c": "[[[["}'
    limits.check_depth({"a": [[1], [2], {"b": 1}], "c": "[[[["}, body)
    with pytest.raises(ServingError, match="At most 3 levels"):
        limits.check_depth({"a": [[1], [[2]]]}, body)


def test_objects_count_as_depth():
    with pytest.raises(ServingError, match="At most 3 levels"):
        Limits(max_json_depth=3).check_depth({"a": {"b": {"c": {}}}}, b'{"a": {"b": {"c": {}}}}')


def test_a_body_in_parts_is_read_up_to_the_limit():
    api = RestApi(None, 1, Limits(max_request_bytes=10), 0)
    read, sent = [], []

    async def receive():
        read.append(b"123456")
        kind = "http.request" if len(read) < 6 else "http.disconnect"
        return {"type": kind, "body": read[-1], "more_body": len(read) < 5}

    async def send(message):
        sent.append(message)

    path = "/v1/models/toy:predict"
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode()}
    asyncio.run(api({**scope, "headers": [], "query_string": b""}, receive, send))
    assert len(read) == 2 and sent[0]["status"] >= 400


def test_an_empty_string_tensor_passes_the_limits():
    check_tensors({"x": np.zeros((0, 2), object)}, Limits(max_string_bytes=1))


def test_a_shape_larger_than_a_request_is_refused(limited):
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "toy", "echo"
    tensor = request.inputs["x"]
    tensor.dtype = tf.float32.as_datatype_enum
    tensor.float_val.append(1.0)
    for sizes, code in (
        ([1000], "OK"),
        ([1001], "INVALID_ARGUMENT"),
        ([10**9] * 2, "INVALID_ARGUMENT"),
    ):
        del tensor.tensor_shape.dim[:]
        for size in [1, *sizes]:
            tensor.tensor_shape.dim.add(size=size)
        with limited.channel() as channel:
            predict = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict
            call = predict.future(request, timeout=30)
            assert call.code().name == code
        if code != "OK":
            assert call.details().startswith(
                "Input x must take at most 4000 bytes. Its shape [1, 1"
            )


@pytest.mark.parametrize(
    "dtype, sizes, message",
    [
        (tf.string, [30_000_000], "at most 4096 rows. Received: 30000000"),
        (tf.int32, [2000, 1000], r"at most 1048576 values. Its shape \[2000, 1000\] has 2000000"),
        (tf.bool, [1, 2**21], "at most 1048576 values"),
        (tf.float32, [1, 2**27], "at most 268435456 bytes"),
    ],
)
def test_a_shape_is_refused_before_it_takes_memory(monkeypatch, dtype, sizes, message):
    request = predict_pb2.PredictRequest()
    request.inputs["x"].dtype = dtype.as_datatype_enum
    for size in sizes:
        request.inputs["x"].tensor_shape.dim.add(size=size)
    monkeypatch.setattr(tf, "make_ndarray", lambda _: pytest.fail("takes memory"))
    with pytest.raises(ServingError, match=f"Input x must .*{message}"):
        run_predict_request(None, request, limits=Limits())


@pytest.mark.parametrize("sizes, small", [([], True), ([4096], True), ([5, 823], False)])
def test_a_short_request_for_many_values_is_not_small(sizes, small):
    request = predict_pb2.PredictRequest()
    request.inputs["x"].float_val.append(1.0)
    for size in sizes:
        request.inputs["x"].tensor_shape.dim.add(size=size)
    assert is_small(request) == small


def test_the_limit_of_ids_does_not_count_floats():
    limits = Limits(max_ids=6)
    check_tensors({"x": np.zeros([7, 5], np.float32), "y": np.zeros([3, 2], np.int32)}, limits)
    for dtype in (np.int32, np.bool_, object):
        with pytest.raises(ServingError, match=r"Its shape \[7, 5\] has 35"):
            check_tensors({"x": np.zeros([7, 5], dtype)}, limits)


@pytest.mark.point(n=5)
def test_too_many_waiting_rest_requests_are_refused(limited, waiting):
    body = {"signature_name": "slow", "instances": [2_000_000_000]}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(limited.predict, body) for _ in range(8)]
        waiting(lambda: sum(future.done() for future in answers) == 5)
        busy = {"error": "The server is busy: 1 requests wait already"}
        assert limited.predict({"instances": ["a"]}) == (429, busy)
        # Questions for a state are answered.
        assert limited.states() == {1: "AVAILABLE"}
        assert limited.json("GET", "/v1/models/toy/metadata")[0] == 200
        statuses = sorted(future.result()[0] for future in answers)
    # Two run and one waits until its time is over.
    assert statuses == [429] * 5 + [504] * 3


def test_too_many_waiting_grpc_calls_are_refused(limited, waiting):
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "toy", "slow"
    request.inputs["steps"].CopyFrom(tf.make_tensor_proto(np.int32([2_000_000_000])))
    with limited.channel() as channel:
        predict = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict
        calls = [predict.future(request, timeout=4) for _ in range(8)]
        waiting(lambda: sum(call.done() for call in calls) == 5)
        refused = [call for call in calls if call.done()]
        assert {(call.code().name, call.details()) for call in refused} == {
            ("RESOURCE_EXHAUSTED", "The server is busy: 1 requests wait already")
        }
        status = get_model_status_pb2.GetModelStatusRequest()
        status.model_spec.name = "toy"
        asked = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(status, timeout=2)
        assert asked.model_version_status[0].version == 1
        health = health_pb2_grpc.HealthStub(channel)
        assert health.Check(health_pb2.HealthCheckRequest(), timeout=2).status == 1
        assert not all(call.done() for call in calls), "it was busy all the time"
        codes = [call.code().name for call in calls if call not in refused]
    assert codes == ["DEADLINE_EXCEEDED"] * 3
