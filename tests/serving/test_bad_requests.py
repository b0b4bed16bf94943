"""Malformed requests get an error that says what is wrong, and the next client is served.

KERAS_ATTN_SERVING_REQUESTS sets the number of requests; the defaults suit a test run.
"""

import contextlib
import http.client
import json
import os
import re
import socket

import grpc
import hypothesis
import pytest
from bad_requests import (
    BAD,
    METHODS,
    broken_messages,
    documents,
    other_requests,
    predict_requests,
)
from each import check_each
from hypothesis import strategies as st

COUNT = int(os.environ.get("KERAS_ATTN_SERVING_REQUESTS", 40))
CHECK_EVERY = 50
PREDICT = "/v1/models/toy:predict"
# What our server may say over gRPC to a request that it can read.
OWN_ERRORS = {"INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "UNIMPLEMENTED"}


def made_up(share, strategy):
    """Make a hypothesis test of so many percent of the requests."""

    def decorate(function):
        # The same requests in every run: a failure is found again.
        settings = hypothesis.settings(
            max_examples=max(COUNT * share // 100, 1),
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        return settings(hypothesis.given(strategy)(function))

    return decorate


@pytest.fixture(scope="module")
def ours(server):
    """Our server; the claims do not hold for others."""
    if not server.is_ours:
        pytest.skip("the limits and the log are those of our server")
    yield server
    before, _, after = server.log.read_text().partition("Traceback")
    assert not after, before[-1000:] + after[:3000]


@pytest.fixture
def check(ours):
    """Function to call after each request: every 50th time a valid request must succeed."""
    sent = 0

    def check():
        nonlocal sent
        sent += 1
        if sent % CHECK_EVERY == 0:
            status, answer = ours.predict({"instances": [f"still {sent}"]})
            translation = answer["predictions"][0]["translation"]
            assert (status, translation) == (200, f"00000007:still {sent}")

    yield check
    print(f"{sent} requests")  # pytest -rP shows it
    sent = CHECK_EVERY - 1
    check()


@pytest.fixture
def post(ours):
    """Function that posts a body over an open connection and returns status and parsed answer."""
    with contextlib.closing(
        http.client.HTTPConnection(ours.host, ours.rest_port, timeout=60)
    ) as connection:

        def send(path, body):
            try:
                connection.request("POST", path, body)
                return connection.getresponse()
            except (http.client.RemoteDisconnected, ConnectionError):
                connection.close()  # It was open for too long, so the server had closed it.
                connection.request("POST", path, body)
                return connection.getresponse()

        def post(path, body):
            response = send(path, body)
            content = response.read()
            assert response.getheader("content-type") == "application/json"
            if response.status == 200:
                return 200, json.loads(content.decode("utf-8", "surrogateescape"))
            answer = json.loads(content)
            assert list(answer) == ["error"] and isinstance(answer["error"], str)
            assert answer["error"]
            return response.status, answer

        yield post


def test_malformed_json_requests_are_answered_with_400(post, check):
    kinds = [strategy.map(lambda body, k=kind: (k, body)) for kind, strategy in BAD.items()]

    @made_up(30, st.one_of(*kinds))
    def run(request):
        kind, content = request
        status, answer = post(PREDICT, content)
        assert status == 400, (kind, answer)
        check()

    run()


def test_random_json_requests_get_a_valid_answer_or_error(post, check):
    path = st.tuples(
        st.sampled_from(["toy", "toy", "toy/versions/7", "foo", "toy/versions/8", "toy/labels/a"]),
        st.sampled_from(["predict", "predict", "classify", "regress"]),
    ).map(lambda parts: f"/v1/models/{parts[0]}:{parts[1]}")

    @made_up(30, st.tuples(path, documents()))
    def run(request):
        path, content = request
        status, answer = post(path, content)
        assert status in (200, 400, 404, 501), answer
        assert status != 404 or "foo" in path or "/8" in path
        if status == 200:
            (key,) = answer
            assert key in ("predictions", "outputs", "results")
        check()

    run()


HEAD = b"Host: a\r\nConnection: close\r\n"
POST = b"POST /v1/models/toy:predict HTTP/1.1\r\n" + HEAD
BODY = b'{"instances": ["a"]}'
# Bytes of a connection, and the statuses that may answer them; None: it ends there and is closed.
RAW = {
    POST + b"Content-Length: 20\r\n\r\n" + BODY: {200},
    POST + b"Content-Length: 99\r\n\r\n" + BODY: {400, None},
    POST + b"Content-Length: -1\r\n\r\n" + BODY: {400},
    POST + b"Content-Length: 3, 4\r\n\r\n" + BODY: {400},
    POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n[1,2]\r\n0\r\n\r\n": {400},
    POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n": {400, None},
    POST + b"X: " + b"a" * 70_000 + b"\r\n\r\n": {400},
    POST + b"X: \0\r\n\r\n": {400},
    b"GET /v1/models/toy HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n"
    b"Connection: close, Upgrade\r\nSec-WebSocket-Key: a\r\n\r\n": {200, 400},
    b"GET /v1/models/%2e%2e/%00%zz HTTP/1.1\r\n" + HEAD + b"\r\n": {400, 404},
    b"CONNECT a:80 HTTP/1.1\r\n" + HEAD + b"\r\n": {400, 404},
    b"GET / HTTP/9\r\n" + HEAD + b"\r\n": {400},
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": {400, 404, None},
    b"\x16\x03\x01\x02\x00\x01": {400, None},  # TLS
    b"": {None},
}


def exchange(server, content, ends):
    """Return the bytes that come back before the server closes the connection."""
    with socket.create_connection((server.host, server.rest_port), timeout=20) as connection:
        received = b""
        with contextlib.suppress(ConnectionError):  # closed with bytes that it did not read
            connection.sendall(content)
            if ends:
                connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(1 << 16):
                received += chunk
    return received


def test_malformed_http_is_answered_or_closed(ours, check):
    def ask(content, statuses):
        head, _, answer = exchange(ours, content, None in statuses).partition(b"\r\n\r\n")
        status = int(re.match(rb"HTTP/1.1 (\d{3})", head)[1]) if head else None
        assert status in statuses
        if b"content-type: application/json" in head and status != 200:
            assert list(json.loads(answer)) == ["error"]
        check()

    check_each(ask, {str(content[-70:]): (content, statuses) for content, statuses in RAW.items()})


def test_random_grpc_messages_get_a_valid_answer_or_error(ours, check):
    with ours.channel() as channel:
        methods = {name: channel.unary_unary(name) for name in METHODS}

        requests = predict_requests() | predict_requests() | other_requests() | broken_messages()

        @made_up(20, requests)
        def run(request):
            method, content = request
            try:
                methods[method](content, timeout=60)
            except grpc.RpcError as error:
                code, details = error.code().name, error.details()
                broken = (code, details) == ("INTERNAL", "The bytes are not this call's request")
                if broken:
                    with pytest.raises(Exception, match="Error parsing message"):
                        METHODS[method].FromString(content)
                assert details and (broken or code in OWN_ERRORS), (code, details)
            check()

        run()
