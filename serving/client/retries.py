"""Errors of a client, and retries within a time limit.

Not taken from a package, so that the REST client needs the standard library alone.
"""

import itertools
import random
import time

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds
# A socket accepts no less than zero, and no more than an int32 of milliseconds.
_SHORTEST_WAIT, _LONGEST_WAIT = 1e-3, 1e6


class ClientError(Exception):
    """Failure of a request; the message is one sentence for the user.

    `is_retryable` is True if the same request may succeed a moment later: the connection was
    refused or lost, or the server is overloaded.
    """

    def __init__(self, message, is_retryable=False):
        super().__init__(" ".join(message.split()))
        self.is_retryable = is_retryable


class TimeLimit:
    """End of a whole call: of all attempts, and of the pauses between them."""

    def __init__(self, seconds):
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self):
        """Return the seconds until the end, negative after it."""
        return self._end - time.monotonic()

    def wait(self):
        """Return the seconds until the end as a timeout for a socket."""
        return min(max(self.left(), _SHORTEST_WAIT), _LONGEST_WAIT)

    def error(self, address):
        """Return the error of a call that took too long."""
        return ClientError(f"{address} did not answer within {self.seconds:g} seconds.")


def with_retries(call, seconds, retries):
    """Call with a `TimeLimit` until an answer, a lasting failure, or no time or attempt is left.

    Pauses double from a tenth of a second to five, and are shortened by up to a half at random, so
    that the clients of a server that restarts do not all return at once. A prediction changes
    nothing on the server, so it may be sent twice.
    """
    limit = TimeLimit(seconds)
    for attempt in itertools.count(1):
        try:
            return call(limit)
        except ClientError as error:
            pause = min(_FIRST_PAUSE * 2 ** (attempt - 1), _LONGEST_PAUSE) * random.uniform(0.5, 1)
            if error.is_retryable and attempt <= retries and pause < limit.left():
                time.sleep(pause)
                continue
            if attempt == 1:
                raise
            tried = f"{str(error).removesuffix('.')} ({attempt} attempts)"
            raise ClientError(tried, error.is_retryable) from error
