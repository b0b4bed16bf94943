"""HTTP server of the REST API: uvicorn, with a time limit for the head of a request."""

import asyncio
import socket

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol


class _HeadTimer:
    """Time limit of one connection's next request head.

    uvicorn closes a connection that waits for its next request, but not one that never sends
    anything or sends a head byte by byte. This class uses nothing but the transport: the limit
    runs while bytes come in and no request has reached the application.
    """

    def __init__(self, transport, seconds):
        self._transport, self._seconds = transport, seconds
        self._handle = None
        self._answering = 0

    def start(self):
        """Limit the time until `request_began`, unless a request is being answered."""
        if self._handle is None and not self._answering:
            self._handle = asyncio.get_running_loop().call_later(
                self._seconds, self._transport.close
            )

    def stop(self):
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def request_began(self):
        self.stop()
        self._answering += 1

    def request_ended(self):
        self._answering -= 1


class RestServer:
    """HTTP server of an ASGI application; `serve` runs until `stop`.

    Args:
        application: ASGI application.
        listener: listening `socket.socket`.
        head_seconds: float. Time limit of the head of a request, 0 for none.
    """

    def __init__(self, application, listener, head_seconds=0):
        self._listener = listener
        # Accepted connections inherit it; without it an answer's body waits for the client's
        # delayed acknowledgement of its head, 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._application = application
        self._timers = {}  # address of a client -> _HeadTimer
        self._config = uvicorn.Config(
            self._answer if head_seconds else application,
            http=self._protocol_class(head_seconds) if head_seconds else "h11",
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
        """Take no new requests; drop those that still run after so many seconds."""
        self._config.timeout_graceful_shutdown = grace
        self._server.should_exit = True

    async def _answer(self, scope, receive, send):
        timer = self._timers.get(tuple(scope["client"] or ()))
        if timer is None:
            return await self._application(scope, receive, send)
        timer.request_began()
        try:
            await self._application(scope, receive, send)
        finally:
            timer.request_ended()

    def _protocol_class(self, head_seconds):
        timers = self._timers

        class Protocol(H11Protocol):
            """uvicorn's protocol; the methods are those of `asyncio.Protocol`."""

            def connection_made(self, transport):
                super().connection_made(transport)
                self.address = tuple(transport.get_extra_info("peername", ())[:2])
                self.timer = timers[self.address] = _HeadTimer(transport, head_seconds)
                self.timer.start()

            def data_received(self, data):
                self.timer.start()
                super().data_received(data)

            def connection_lost(self, exc):
                timers.pop(self.address, self.timer)
                self.timer.stop()
                super().connection_lost(exc)

        return Protocol
