"""HTTP server of the REST API: uvicorn, with a time limit for the head of a request.

When it stops, no client is left with a connection that will be reset: the last answers say that
they are the last ones, and idle connections are closed.
"""

import asyncio
import contextlib
import socket
import threading

import uvicorn

from .http_protocol import HttpProtocol

_CLOSE = (b"connection", b"close")
_HEAD_SECONDS_AT_STOP = 1.0  # for the rest of a head that has begun to arrive


class _HeadTimer:
    """Time limit of the next request head on one connection.

    uvicorn closes a connection that waits for its next request, but not one that never sends
    anything or sends a head byte by byte. The limit runs from the first byte, or from the start of
    the connection, until the request reaches the application.
    """

    def __init__(self, transport, seconds):
        self._transport, self._seconds = transport, seconds
        self._handle, self._answering = None, 0
        self.has_begun = False  # a head has, and has not reached the application
        self.start()

    def start(self):
        if self._handle is None and not self._answering:
            loop = asyncio.get_running_loop()
            self._handle = loop.call_later(self._seconds, self._transport.close)

    def stop(self):
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def receive(self):
        """Note that bytes have arrived: of a head, unless a request is being answered."""
        self.has_begun = not self._answering
        self.start()

    def __enter__(self):
        self.stop()
        self._answering += 1
        self.has_begun = False

    def __exit__(self, *_):
        self._answering -= 1


class RestServer:
    """HTTP server of an ASGI application on a listening socket; `serve` runs until `stop`.

    The head of a request has a time limit of `head_seconds`, 0 for none.
    """

    def __init__(self, application, listener, head_seconds=0):
        # Accepted connections inherit it; without it an answer's body waits for the client's
        # delayed acknowledgement of its head, 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._listener, self._application = listener, application
        self._timers = {}  # address of a client -> _HeadTimer
        self._is_stopping = False
        self._config = uvicorn.Config(
            self._answer,
            http=_protocol_class(self._timers, head_seconds or threading.TIMEOUT_MAX),
            interface="asgi3",
            ws="none",
            lifespan="off",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,  # `scope["client"]` is the connection's own address
        )
        self._server = uvicorn.Server(self._config)

    async def serve(self):
        """Answer requests until `stop`, and then until the running ones are done."""
        await self._server.serve(sockets=[self._listener])

    def stop(self, grace):
        """Take no new requests; drop those that still run after so many seconds.

        Until uvicorn closes idle connections, at its next tick, it takes requests on them, too.
        """
        self._is_stopping = True
        self._config.timeout_graceful_shutdown = grace
        self._server.should_exit = True

    async def _answer(self, scope, receive, send):
        async def send_part(message):
            if self._is_stopping and message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], _CLOSE]}
            await send(message)

        with self._timers.get(tuple(scope["client"] or ()), contextlib.nullcontext()):
            await self._application(scope, receive, send_part)


def _protocol_class(timers, head_seconds):
    class TimedProtocol(HttpProtocol):
        """uvicorn's protocol with timers; its methods are those of `asyncio.Protocol`."""

        def connection_made(self, transport):
            super().connection_made(transport)
            self.address = tuple((transport.get_extra_info("peername") or ())[:2])
            self.timer = timers[self.address] = _HeadTimer(transport, head_seconds)

        def data_received(self, data):
            self.timer.receive()
            super().data_received(data)

        def connection_lost(self, exc):
            self.timer.stop()
            timers.pop(self.address, None)
            super().connection_lost(exc)

        def shutdown(self):
            """Close the connection if it is idle; uvicorn calls it once, when it stops."""
            if self.timer.has_begun:
                self.loop.call_later(_HEAD_SECONDS_AT_STOP, super().shutdown)
            else:
                super().shutdown()

    return TimedProtocol
