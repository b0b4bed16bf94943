"""The HTTP server at its end, and requests whose bodies do not arrive; no model runs."""

import asyncio
import contextlib
import http.client
import importlib.util
import json
import resource
import socket
import sys
import threading

import pytest

from serving import http_protocol
from serving.limits import Limits
from serving.rest_api import RestApi
from serving.rest_server import RestServer
from serving.server import raise_file_limit

STEP = b"POST /v1/models/toy:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"


@contextlib.contextmanager
def running(application):
    """Serve an ASGI application on a thread; yield the server's address and its `stop`."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    server, loop = RestServer(application, listener), asyncio.new_event_loop()
    address = listener.getsockname()
    thread = threading.Thread(target=loop.run_until_complete, args=[server.serve()])
    thread.start()

    def stop():
        loop.call_soon_threadsafe(server.stop, 5)

    try:
        yield address, stop
    finally:
        stop()
        thread.join()
        loop.close()
        listener.close()


class Held:
    """Application that answers a request for /held once it is released."""

    def __init__(self):
        self.arrived, self.released = threading.Event(), threading.Event()

    async def __call__(self, scope, receive, send):
        if scope["path"] == "/held":
            self.arrived.set()
            while not self.released.is_set():
                await asyncio.sleep(0.01)
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})


def read_answer(client):
    answer = http.client.HTTPResponse(client)
    answer.begin()
    return answer.read(), answer.headers["connection"]


@pytest.fixture(params=["httptools", "h11"])
def parser(request, monkeypatch):
    """Each HTTP parser in turn, as it is chosen where httptools is or is not installed."""
    if request.param == "httptools":
        pytest.importorskip("httptools", reason="needs pip install 'keras_attn[serving]'")
        chosen = http_protocol.HttpProtocol
    else:
        monkeypatch.setitem(sys.modules, "uvicorn.protocols.http.httptools_impl", None)
        spec = importlib.util.spec_from_file_location("without", http_protocol.__file__)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        chosen = module.HttpProtocol
    monkeypatch.setattr("serving.rest_server.HttpProtocol", chosen)


def test_the_last_answers_close_their_connections_and_idle_ones_are_closed(parser):
    held = Held()
    with running(held) as (address, stop), contextlib.ExitStack() as stack:
        idle, busy, begun, quick = (
            stack.enter_context(socket.create_connection(address, timeout=10)) for _ in range(4)
        )
        for client in (idle, begun, quick):
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert read_answer(client) == (b"ok", None)
        begun.sendall(b"GET /begun HTTP/1.1\r\n")  # the head's end comes after the stop
        busy.sendall(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\n")
        assert held.arrived.wait(10)
        stop()
        quick.sendall(b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_answer(quick) == (b"ok", "close")
        assert idle.recv(1) == b"" == quick.recv(1)
        begun.sendall(b"Host: x\r\n\r\n")
        assert read_answer(begun) == (b"ok", "close") and begun.recv(1) == b""
        held.released.set()
        assert read_answer(busy) == (b"ok", "close") and busy.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=10)


@pytest.mark.parametrize("where", ["head", "header", "trailer"])
def test_heads_and_trailers_have_a_bound(parser, where):
    begin = b"POST / HTTP/1.1\r\nHost: x\r\n"
    if where == "trailer":
        begin += b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"
    piece = b"a" * 1000 if where == "header" else b"a: b\r\n" * 150
    held = Held()
    with running(held) as (address, _), socket.create_connection(address, timeout=10) as client:
        client.sendall(begin + (b"a: " if where == "header" else b""))
        with contextlib.suppress(ConnectionError):
            for _ in range(1000):
                client.sendall(piece)
        with contextlib.suppress(ConnectionError):
            assert client.recv(12) in (b"HTTP/1.1 400", b"HTTP/1.1 200", b"")
    long = b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 9000 + b"\r\n\r\n"
    body = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n" + b"a" * 300_000
    with running(held) as (address, _), socket.create_connection(address, timeout=10) as client:
        client.sendall(long)
        assert read_answer(client) == (b"ok", None)
        client.sendall(body)
        assert read_answer(client)[0] == b"ok"


def test_the_limit_of_open_connections_is_raised_and_never_lowered():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = min(before[1] % 2**64, 65536)  # without a limit it is -1
    try:
        for soft, after in ((min(before[0], 256), most), (before[1], before[1])):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
            raise_file_limit()
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (after, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


class Manager:
    """Knows no model: a request for one is answered without TensorFlow."""

    def knows(self, name):
        return False


@pytest.mark.parametrize("action", ["predict", "stream"])
def test_bodies_that_do_not_arrive_keep_no_request_out(action):
    """The server has one thread and lets one request wait."""
    api = RestApi(Manager(), 1, Limits(max_waiting_requests=1), 0)
    with running(api) as (address, _), contextlib.ExitStack() as stack:
        for _ in range(7):
            stalled = stack.enter_context(socket.create_connection(address, timeout=10))
            stalled.sendall(STEP.replace(b"predict", action.encode()))
        client = http.client.HTTPConnection(*address, timeout=10)
        stack.callback(client.close)
        client.request("POST", f"/v1/models/toy:{action}", b"[]")
        answer = client.getresponse()
        assert answer.status == 400, answer.read()
        assert "Is not object" in json.loads(answer.read())["error"]
