"""Malformed requests get an error that says what is wrong, and the next client is served.

KERAS_ATTN_SERVING_REQUESTS sets the number of random requests; the default suits a test run. Tables
of wrong requests are in test_rest_predict.py and test_grpc.py.
"""

import contextlib
import json
import os
import re
import socket

import hypothesis
import pytest
from each import check_each
from hypothesis import strategies as st

COUNT = int(os.environ.get("KERAS_ATTN_SERVING_REQUESTS", 30))
CHECK_EVERY = 50
# Inputs of signatures of toy_models.py.
INPUTS = {
    "": ["text"],
    "numbers": ["a", "b"],
    "types": ["double", "long", "byte", "flag"],
    **dict.fromkeys("echo as_bytes as_text half total uneven fails".split(), ["x"]),
    **dict.fromkeys(("classify", "regress"), ["inputs"]),
}


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


texts = st.text(st.characters(codec=None), max_size=20)
integers = st.integers() | st.sampled_from([2**31, 2**63, 2**64, -(2**63) - 1, 10**400])
leaves = st.none() | st.booleans() | integers | st.floats() | texts
values = st.recursive(
    leaves | st.fixed_dictionaries({"b64": texts | leaves}),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


@st.composite
def documents(draw):
    """A body that is nearly right: of a request's words, with values that may fit or not."""
    signature = draw(st.sampled_from(list(INPUTS)) | values)
    names = INPUTS.get(signature, ["x"]) if isinstance(signature, str) else ["x"]
    rows = st.dictionaries(st.sampled_from(names) | texts, values, max_size=5)
    fitting = st.fixed_dictionaries({name: values for name in names})
    numbers = st.lists(st.floats() | integers, max_size=4)
    content = values | rows | fitting | st.lists(values | rows | fitting, max_size=4) | numbers
    optional = dict.fromkeys(("instances", "inputs", "examples", "context"), content)
    optional["signature_name"] = st.just(signature)
    document = draw(st.fixed_dictionaries({}, optional=optional))
    content = json.dumps(document, ensure_ascii=draw(st.booleans()))
    content = content.encode("utf-8", "surrogatepass")
    for _ in range(draw(st.integers(0, 2))):
        start = draw(st.integers(0, len(content)))
        end = draw(st.integers(start, min(start + 5, len(content))))
        content = content[:start] + draw(st.binary(max_size=5)) + content[end:]
    return content


@pytest.mark.slow
def test_random_json_requests_get_a_valid_answer_or_error(ours, check):
    models = ["toy", "toy", "toy/versions/7", "foo", "toy/versions/8", "toy/labels/a"]
    path = st.tuples(
        st.sampled_from(models), st.sampled_from(["predict", "predict", "classify", "regress"])
    ).map(lambda parts: f"/v1/models/{parts[0]}:{parts[1]}")

    @hypothesis.settings(
        max_examples=COUNT,
        deadline=None,
        derandomize=True,  # the same requests in every run: a failure is found again
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(path, documents())
    def run(path, content):
        status, headers, answer = ours.request("POST", path, content)
        assert status in (200, 400, 404, 501), answer
        assert status != 404 or "foo" in path or "/8" in path
        assert headers["content-type"] == "application/json"
        (key,) = json.loads(answer.decode("utf-8", "surrogateescape"))
        assert (key == "error") == (status != 200)
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
