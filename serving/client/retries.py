"""Asking again, within a time limit."""

import random
import time

from .errors import ClientError

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
# A socket takes no less than zero, and no more than an int32 of milliseconds.
_SHORTEST_WAIT, _LONGEST_WAIT = 1e-3, 1e6


class TimeLimit:
    """The end of a whole call: of all attempts, and of the pauses between them.

    Args:
        seconds: float.
    """

    def __init__(self, seconds):
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self):
        """Seconds until the end, negative after it."""
        return self._end - time.monotonic()

    def wait(self):
        """The same for a socket, which is to wait until then."""
        return min(max(self.left(), _SHORTEST_WAIT), _LONGEST_WAIT)

    def error(self, place):
        """What to raise when it is over."""
        return ClientError(f"{place} did not answer within {self.seconds:g} seconds.")


def with_retries(call, seconds, retries):
    """Calls until there is an answer, a failure that will not pass, or no time or attempt left.

    Pauses double from a tenth of a second to five, and are shortened by up to a half at random, so
    that clients whose server went away do not come back all at once. A prediction changes nothing
    on the server, so it may be asked for twice.

    Args:
        call: function of a `TimeLimit`.
        seconds: float. The limit.
        retries: int. Most attempts after the first.

    Returns:
        What the call returned.

    Raises:
        ClientError: the last attempt's.
    """
    limit = TimeLimit(seconds)
    attempt = 0
    while True:
        try:
            return call(limit)
        except ClientError as error:
            pause = min(_FIRST_PAUSE * 2**attempt, _LONGEST_PAUSE) * random.uniform(0.5, 1)
            attempt += 1
            if error.may_pass and attempt <= retries and pause < limit.left():
                time.sleep(pause)
            elif attempt > 1:
                tried = f"{str(error).removesuffix('.')} ({attempt} attempts)"
                raise ClientError(tried, error.may_pass) from error
            else:
                raise
