"""Runs the REST application on a thread of its own."""

import functools
import socket
import threading

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from .addresses import family


class _Connection(H11Protocol):
    """Closes a connection whose request head does not arrive in time, however slowly it drips.

    The body has a time limit of its own, and uvicorn closes connections without a new request.
    """

    def __init__(self, *args, head_seconds, **kwargs):
        super().__init__(*args, **kwargs)
        self._head_seconds = head_seconds
        self._head_timer = None

    def connection_made(self, transport):
        """The first head is awaited."""
        super().connection_made(transport)
        self._watch_head()

    def data_received(self, data):
        """Awaits the rest of a head that has begun, or rests."""
        super().data_received(data)
        self._watch_head()

    def connection_lost(self, exc):
        """There is nothing to wait for."""
        super().connection_lost(exc)
        self._watch_head()

    def _watch_head(self):
        waits = self.conn.their_state is h11.IDLE and not self.transport.is_closing()
        if waits and self._head_timer is None:
            self._head_timer = self.loop.call_later(self._head_seconds, self._give_up)
        elif not waits and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self):
        if self.conn.their_state is h11.IDLE:
            self.transport.close()


class RestServer:
    """An HTTP server that starts and stops like a `grpc.Server`.

    Args:
        application: ASGI application.
        host: string. Address to listen on.
        port: int.
        head_seconds: float or None. How long the head of a request may take; None for ever.

    Raises:
        OSError: if the address is taken.
    """

    def __init__(self, application, host, port, head_seconds=None):
        try:
            self._socket = socket.create_server((host, port), family=family(host), backlog=2048)
        except OSError as error:
            raise OSError(f"REST cannot listen on {host}:{port}: {error.strerror}") from error
        # Accepted connections inherit it; without it an answer's body waits for the client's
        # delayed acknowledgement of its head, 40 ms.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = functools.partial(
            _Connection, head_seconds=head_seconds or threading.TIMEOUT_MAX
        )
        self._config = uvicorn.Config(
            application,
            http=connection,
            ws="none",
            lifespan="off",
            log_level="warning",
            access_log=False,
            server_header=False,
        )
        self._server = uvicorn.Server(self._config)
        self._done = threading.Event()

    def start(self):
        """Starts answering."""
        threading.Thread(target=self._run, name="rest-server", daemon=True).start()

    def stop(self, grace):
        """Takes no new requests and lets the running ones finish.

        Args:
            grace: int. Seconds after which running requests are dropped.

        Returns:
            `threading.Event`, set when the last request is done.
        """
        self._config.timeout_graceful_shutdown = grace
        self._server.should_exit = True
        return self._done

    def _run(self):
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._done.set()
