"""Runs the REST application on a thread of its own."""

import socket
import threading

import uvicorn


class RestServer:
    """An HTTP server that starts and stops like a `grpc.Server`.

    Args:
        application: ASGI application.
        host: string. Address to listen on.
        port: int.

    Raises:
        OSError: if the address is taken.
    """

    def __init__(self, application, host, port):
        try:
            self._socket = socket.create_server((host, port), backlog=2048)
        except OSError as error:
            raise OSError(f"REST cannot listen on {host}:{port}: {error.strerror}") from error
        # Accepted connections inherit it; without it an answer's body waits for the client's
        # delayed acknowledgement of its head, 40 ms.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._config = uvicorn.Config(
            application, lifespan="off", log_level="warning", access_log=False, server_header=False
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
