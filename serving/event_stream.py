"""Server-sent events as an ASGI answer."""

from starlette.responses import Response

from .json_text import dump, dump_error

_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # a proxy such as nginx would collect the events
}


class EventStream:
    """Answer of one request as server-sent events, each the JSON of a value.

        data: {"token_id": 5, ...}

    The status is sent with the first event: an error before it is an ordinary answer with its
    status, an error after it is an event named `error`.

    Reference: https://html.spec.whatwg.org/multipage/server-sent-events.html
    """

    def __init__(self, scope, receive, send):
        self._arguments, self._send, self._has_started = (scope, receive, send), send, False

    async def send(self, value):
        """Send one event."""
        await self._send_text(b"data: " + dump(value) + b"\n\n")

    async def end(self, error=None):
        """End the answer, with a `ServingError` if there is one."""
        if error is None:
            await self._send_body(b"", more_body=False)
        elif self._has_started:
            await self._send_text(b"event: error\ndata: " + dump_error(error.message) + b"\n\n")
            await self._send_body(b"", more_body=False)
        else:
            content = dump_error(error.message)
            response = Response(content, error.http_status, media_type="application/json")
            await response(*self._arguments)

    async def _send_text(self, content):
        if not self._has_started:
            headers = [(k.lower().encode(), v.encode()) for k, v in _HEADERS.items()]
            start = {"type": "http.response.start", "status": 200, "headers": headers}
            await self._send(start)
            self._has_started = True
        await self._send_body(content, more_body=True)

    async def _send_body(self, content, more_body):
        message = {"type": "http.response.body", "body": content, "more_body": more_body}
        await self._send(message)
