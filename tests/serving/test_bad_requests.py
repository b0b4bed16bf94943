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
    http_requests,
    other_requests,
    predict_requests,
)
from hypothesis import strategies as st

REQUESTS = os.environ.get("KERAS_ATTN_SERVING_REQUESTS")
CHECK_EVERY = 50
PREDICT = "/v1/models/toy:predict"
# What our server may say over gRPC to a request that it can read.
OWN_ERRORS = {"INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "UNIMPLEMENTED"}


@pytest.fixture(params=[60, pytest.param(400, marks=pytest.mark.slow)])
def count(request):
    """Number of requests; a fast test sends the first ones of a slow one."""
    return int(REQUESTS or request.param)


def made_up(count, share, strategy):
    """Make a hypothesis test of so many percent of the requests."""

    def decorate(function):
        # The same requests in every run: a failure is found again.
        settings = hypothesis.settings(
            max_examples=max(count * share // 100, 1),
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


def test_malformed_json_requests_are_answered_with_400(post, check, count):
    @made_up(
        count, 30, st.one_of(*(strategy.map(lambda b, k=k: (k, b)) for k, strategy in BAD.items()))
    )
    def run(request):
        kind, content = request
        status, answer = post(PREDICT, content)
        assert status == 400, (kind, answer)
        check()

    run()


def test_random_json_requests_get_a_valid_answer_or_error(post, check, count):
    path = st.tuples(
        st.sampled_from(["toy", "toy", "toy/versions/7", "foo", "toy/versions/8", "toy/labels/a"]),
        st.sampled_from(["predict", "predict", "classify", "regress"]),
    ).map(lambda parts: f"/v1/models/{parts[0]}:{parts[1]}")

    @made_up(count, 30, st.tuples(path, documents()))
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


def is_whole(content):
    """Return True if a request ends where its body does, by its head."""
    head, end, sent = content.replace(b"\r\n", b"\n").partition(b"\n\n")
    lengths = re.findall(rb"(?im)^content-length: *([0-9]+)$", head)
    chunked = re.search(rb"(?im)^transfer-encoding: *chunked$", head)
    return bool(end) and all(int(length) <= len(sent) for length in lengths) and not chunked


def exchange(server, content):
    """Return the bytes that come back before the server closes the connection."""
    with socket.create_connection((server.host, server.rest_port), timeout=60) as connection:
        connection.sendall(content)
        received = b""
        with contextlib.suppress(ConnectionError):  # closed with bytes that it did not read
            if not is_whole(content):
                with contextlib.suppress(OSError):  # not connected: it was closed at once
                    connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(1 << 16):
                received += chunk
    return received


def test_malformed_http_is_answered_or_closed(ours, check, count):
    @made_up(count, 20, http_requests() | st.binary(max_size=200))
    def run(content):
        received = exchange(ours, content)
        if not received:
            assert not is_whole(content)
            return check()
        head, _, answer = received.partition(b"\r\n\r\n")
        status = int(re.match(rb"HTTP/1.1 (\d{3})", head)[1])
        assert status in (200, 400, 404, 413, 501), received
        if b"content-type: application/json" in head and answer:
            assert (list(json.loads(answer)) == ["error"]) == (status != 200)
        if status == 200:
            assert re.match(rb"(GET|HEAD|POST|OPTIONS) ", content)
        check()

    run()


def test_random_grpc_messages_get_a_valid_answer_or_error(ours, check, count):
    with ours.channel() as channel:
        methods = {name: channel.unary_unary(name) for name in METHODS}

        @made_up(
            count,
            20,
            predict_requests() | predict_requests() | other_requests() | broken_messages(),
        )
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
