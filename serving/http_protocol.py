"""Protocol class that reads HTTP: over httptools, which takes less than half of h11's time.

uvicorn brings h11, and httptools is part of the extra `serving`; the server runs without it.
"""

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:
    from uvicorn.protocols.http.h11_impl import H11Protocol as HttpProtocol
else:

    class HttpProtocol(HttpToolsProtocol):
        """uvicorn's protocol, with a bound on heads and trailers, which httptools has not.

        The methods `on_...` are those of httptools.
        """

        _MOST_BYTES = 1 << 16  # as in h11
        _num_bytes, _in_fields = 0, False

        def data_received(self, data):
            if self._in_fields:
                self._num_bytes += len(data)
            super().data_received(data)
            if self._in_fields and self._num_bytes > self._MOST_BYTES:
                self.send_400_response("Invalid HTTP request received.")

        def on_message_begin(self):
            self._num_bytes, self._in_fields = 0, True
            super().on_message_begin()

        def on_headers_complete(self):
            self._in_fields = False
            super().on_headers_complete()

        def on_chunk_header(self):  # A chunk of no bytes comes before the trailers.
            self._num_bytes, self._in_fields = 0, True

        def on_body(self, body):
            self._in_fields = False
            super().on_body(body)

        def on_message_complete(self):
            self._in_fields = False
            super().on_message_complete()
