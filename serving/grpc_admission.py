"""Which gRPC calls are taken, and which threads run them."""

import concurrent.futures
import functools
import threading

import grpc
from google.protobuf.message import DecodeError

from .errors import ServingError

_ASK_FOR_A_STATE = {"GetModelStatus", "GetModelMetadata", "Check"}


class CountedPool(concurrent.futures.ThreadPoolExecutor):
    """Threads that know how many calls they have yet to finish.

    Args:
        num_threads: int. Calls that run at once; others wait.
        name: string. What the threads are called.
    """

    def __init__(self, num_threads, name):
        super().__init__(num_threads, name)
        self.num_threads = num_threads
        self.unfinished = 0
        self._count_lock = threading.Lock()

    def submit(self, function, /, *args, **kwargs):
        """Counts a call until it is done, whatever becomes of it."""
        self._add(1)
        future = super().submit(function, *args, **kwargs)
        future.add_done_callback(lambda _: self._add(-1))
        return future

    def _add(self, number):
        with self._count_lock:
            self.unfinished += number


class Admission(grpc.ServerInterceptor):
    """Refuses calls behind which too many wait, and never lets a question for a state wait for models.

    Whoever asks whether the server is well must be told when it is busy, too.

    Args:
        pool: `CountedPool` of the server.
        limits: `Limits`.
    """

    def __init__(self, pool, limits):
        self._pool, self._limits = pool, limits
        self._states = CountedPool(1, "grpc-states")

    def intercept_service(self, continuation, handler_call_details):
        """gRPC's protocol for interceptors: gives the handler of one call."""
        handler = continuation(handler_call_details)
        if handler is None or handler.unary_unary is None:
            return handler
        quick = handler_call_details.method.rpartition("/")[2] in _ASK_FOR_A_STATE
        pool = self._states if quick else self._pool
        call = functools.partial(_answer, handler.unary_unary)
        read = functools.partial(_read, handler.request_deserializer)
        try:
            self._limits.check_waiting(pool.unfinished + 1 - pool.num_threads)
        except ServingError as error:
            # The message is not even read.
            quick, call, read = True, functools.partial(_refuse, error), None
        if quick:
            call.experimental_thread_pool = self._states  # as grpc_health's own servicer does
        return grpc.unary_unary_rpc_method_handler(call, read, handler.response_serializer)


def _read(read, content):
    """The request, or the error: gRPC itself would log each with a traceback."""
    try:
        return read(content)
    except DecodeError as error:
        return error


def _answer(call, request, context):
    if isinstance(request, DecodeError):
        # The code that gRPC gives in every language.
        context.abort(grpc.StatusCode.INTERNAL, "The bytes are not this call's request")
    return call(request, context)


def _refuse(error, _request, context):
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, error.message)
