"""REST API as an ASGI application."""

import asyncio
import functools
import re
import urllib.parse

import numpy as np
from google.protobuf.json_format import MessageToDict
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route, Router
from tensorflow_serving.apis.classification_pb2 import ClassificationRequest
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.regression_pb2 import RegressionRequest

from keras_attn.export.versions import MAX_VERSION

from . import metrics
from .content_encoding import decode_body
from .errors import Code, ServingError, require
from .event_stream import EventStream
from .examples import read_examples
from .inference import prepare_classify, prepare_regress
from .json_inputs import read_inputs, read_signature_name
from .json_text import decimals, dump, dump_error, parse_object, write_outputs
from .model_service import SIGNATURE_DEF, model_metadata, model_status
from .predict import input_dtypes, optional_inputs, prepare
from .request_context import SHORT_BYTES, RequestContext, Workers, catch_errors
from .streaming import StreamRequest, stream_tokens
from .tensors import check_tensors

_FLAGS = re.IGNORECASE | re.ASCII
_API = re.compile(r"/v1/.*", _FLAGS)
_VERSION = r"(?:(?:/versions/(\d+))|(?:/labels/([^/:]+)))?"
_POST = re.compile(rf"/v1/models/([^/:]+){_VERSION}:(classify|regress|predict)", _FLAGS)
_STREAM = re.compile(rf"/v1/models/([^/:]+){_VERSION}:stream", _FLAGS)  # our own
_GET = re.compile(rf"/v1/models(?:/([^/:]+))?{_VERSION}(?:/(metadata))?", _FLAGS)
_VERSION_DIGITS = len(str(MAX_VERSION))
_WATCH_SECONDS = 0.1  # A task for each short request would take as long as reading it.
_NOT_FOUND = "<html><head><title>404 Not Found</title></head><body>Not Found</body></html>"


def make_rest_application(api, cors=False, metrics_path=None, demo_page=None):
    """Return the ASGI application: the API, and the pages of metrics and of the demo if wanted.

    With `cors`, answers carry the headers that let web pages of any site read them.
    """

    async def show_metrics(_request):
        return Response(metrics.page(), headers={"Content-Type": metrics.CONTENT_TYPE})

    async def show_demo(_request):
        content, headers = demo_page()
        return Response(content, headers=headers)

    routes = [Route(metrics_path, show_metrics)] if metrics_path else []
    routes += [Route("/", show_demo)] if demo_page else []
    pages, paths = Router(routes, redirect_slashes=False), {route.path for route in routes}

    async def application(scope, receive, send):
        # Starlette's routes mind the case and decode `%2F` before they split a path.
        is_page = scope["path"] in paths and scope["method"] in ("GET", "HEAD")
        await (pages if is_page else api)(scope, receive, send)

    allowed = {"allow_methods": ["POST", "GET"], "allow_headers": ["Content-Type"]}
    return CORSMiddleware(application, allow_origins=["*"], **allowed) if cors else application


class RestApi:
    """ASGI application that answers `/v1/models/...` as TensorFlow Serving does, and `:stream`.

    At most `num_threads` requests run at once. The event loop moves bytes and reads short requests;
    long ones are read on threads, where models run, too. Questions for a state have a thread of
    their own, for when the models are busy. A request has a time limit of `timeout_ms`, if that is
    positive.
    """

    def __init__(self, manager, num_threads, limits, timeout_ms):
        self._manager = manager
        self._models = Workers(num_threads, limits.max_waiting_requests)
        self._states = Workers(1, limits.max_waiting_requests)
        self._limits, self._timeout_ms = limits, timeout_ms if timeout_ms > 0 else None

    async def __call__(self, scope, receive, send):
        """Answer one request."""
        method, path = scope["method"], scope["raw_path"].decode("latin-1")
        if method == "POST" and (match := _STREAM.fullmatch(path)):
            await self._stream(scope, receive, match, EventStream(scope, receive, send))
        elif not _API.fullmatch(path):
            await HTMLResponse(_NOT_FOUND, 404)(scope, receive, send)
        elif method == "OPTIONS":
            origin = re.search("https?://", _header(scope, b"origin"))
            await Response(status_code=200 if origin else 400)(scope, receive, send)
        else:
            status, content = await self._respond(scope, receive, path)
            length = str(len(content)).encode()
            headers = [(b"content-length", length), (b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": content})

    async def _respond(self, scope, receive, path):
        """Return the HTTP status and the body."""
        request_context, record = RequestContext(self._timeout_ms), metrics.RequestRecord("REST")
        workers = self._models if scope["method"] == "POST" else self._states
        with catch_errors(record) as failure:
            body = await self._receive(scope, receive, request_context, workers)
            with workers.admit(), _Watch(receive, request_context, _WATCH_SECONDS):
                async with workers.place():
                    return 200, await self._process(scope, path, body, request_context, record)
        return failure.error.http_status, dump_error(failure.error.message)

    async def _stream(self, scope, receive, match, answer):
        """Send an event for each token; between two tokens the thread runs other requests."""
        request_context, record = RequestContext(self._timeout_ms), metrics.RequestRecord("REST")
        with catch_errors(record) as failure:
            body = await self._receive(scope, receive, request_context, self._models)
            with self._models.admit(), _Watch(receive, request_context):
                events = self._events(scope, match, body, request_context, record)
                try:
                    following = functools.partial(next, events, None)
                    while event := await self._models.run(following, request_context):
                        await answer.send(event)
                finally:
                    await self._models.run(events.close, request_context)
        await answer.end(failure.error)

    def _events(self, scope, match, body, request_context, record):
        """Yield the events of a streaming request, a generator that lends the model."""
        spec = _model_spec(*match.groups())
        if self._manager.knows(spec.name):
            record.model, record.api = spec.name, "stream"
        wanted = StreamRequest.read(self._parse(scope, body))
        with self._manager.use(spec) as servable:
            yield from stream_tokens(servable, wanted, self._limits, request_context)

    async def _receive(self, scope, receive, request_context, workers):
        """Return the body; stop reading at the size limit and at the time limit.

        A body that arrives slowly keeps no other request out, since it does not count yet.
        """
        workers.check_load()
        length = _header(scope, b"content-length")
        self._limits.check_body(int(length) if length.isdecimal() else 0)
        body, is_whole = bytearray(), False
        try:
            async with asyncio.timeout(request_context.remaining()):
                while not is_whole:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ServingError(Code.CANCELLED, "The client has gone away")
                    chunk = message.get("body", b"")
                    body += chunk
                    self._limits.check_body(len(body))
                    is_whole = not message.get("more_body", False)
        except TimeoutError as error:
            message = "The request's body did not arrive in time"
            raise ServingError(Code.DEADLINE_EXCEEDED, message) from error
        return bytes(body)

    def _parse(self, scope, body):
        """Return the JSON object of a body."""
        body = decode_body(body, _header(scope, b"content-encoding"), self._limits)
        document = parse_object(body)
        self._limits.check_depth(document, body)
        return document

    async def _process(self, scope, path, body, request_context, record):
        method = scope["method"]
        pattern = {"POST": _POST, "GET": _GET}.get(method)
        match = pattern and pattern.fullmatch(path)
        malformed = f"Malformed request: {method} {path}"
        require(match, malformed)
        name, version, label, action = match.groups()
        spec = _model_spec(name, version, label)
        if self._manager.knows(spec.name):  # Made-up names are not kept.
            record.model, record.api = spec.name, action if method == "POST" else ""
        if method == "GET":
            require(spec.name, "Missing model name in request.")
            # Paths match in either case, the words at their end do not.
            tell = self._metadata if action == "metadata" else self._status
            return await self._states.call(lambda: dump(tell(spec)), request_context)
        require(action in _READ, malformed)
        is_compressed = bool(_header(scope, b"content-encoding"))
        is_short = action == "predict" and len(body) <= SHORT_BYTES and not is_compressed
        read = functools.partial(self._read, scope, body, action, spec)
        prepare = await self._models.call(read, request_context, is_short)
        with self._manager.use(spec) as servable:
            work = functools.partial(prepare, servable)
            return await self._models.answer(servable, work, request_context, is_short)

    def _read(self, scope, body, action, spec):
        """Return a function of a servable that returns the `GraphCall` of a body."""
        document = self._parse(scope, body)
        spec.signature_name = read_signature_name(document)
        return _READ[action](spec, document, self._limits)

    def _metadata(self, spec):
        response, signatures = model_metadata(self._manager, spec)
        as_written = functools.partial(_to_json, preserving_proto_field_name=True)
        metadata = {SIGNATURE_DEF: as_written(signatures)}
        return {"model_spec": as_written(response.model_spec), "metadata": metadata}

    def _status(self, spec):
        return _to_json(model_status(self._manager, spec))


def _read_predict(spec, document, limits):
    def prepare_json(servable):
        name = spec.signature_name
        dtypes, optional = input_dtypes(servable, name), optional_inputs(servable, name)
        inputs, row = read_inputs(document, dtypes, optional)
        check_tensors(inputs, limits)
        call = prepare(servable, name, inputs)
        return call.then(lambda outputs: dump(write_outputs(outputs, row)))

    return prepare_json


def _read_classify(spec, document, limits):
    request = ClassificationRequest(model_spec=spec)
    read_examples(document, request.input)

    def write(response):
        rows = [row.classes for row in response.result.classifications]
        scores = [_decimals(item.score for item in row) for row in rows]
        pairs = [
            zip([item.label for item in row], row_scores) for row, row_scores in zip(rows, scores)
        ]
        return dump({"results": [list(map(list, pair)) for pair in pairs]})

    return lambda servable: prepare_classify(servable, request, limits).then(write)


def _read_regress(spec, document, limits):
    request = RegressionRequest(model_spec=spec)
    read_examples(document, request.input)

    def write(response):
        return dump({"results": _decimals(item.value for item in response.result.regressions)})

    return lambda servable: prepare_regress(servable, request, limits).then(write)


_READ = {"predict": _read_predict, "classify": _read_classify, "regress": _read_regress}


def _decimals(values):
    return decimals(np.fromiter(values, np.float32), 9)


_to_json = functools.partial(MessageToDict, always_print_fields_with_no_presence=True)


def _header(scope, name):
    """Return the value of a request's header, or "" if it has none of the name."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


class _Watch:
    """Context that cancels a request when its client goes away, once so many seconds are over."""

    def __init__(self, receive, request_context, seconds=0):
        self._receive, self._request_context = receive, request_context
        self._seconds, self._task = seconds, None

    def __enter__(self):
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._start)

    def __exit__(self, *_):
        self._timer.cancel()
        if self._task:
            self._task.cancel()

    def _start(self):
        self._task = asyncio.create_task(self._watch())

    async def _watch(self):
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._request_context.cancel()


def _model_spec(name, version, label):
    spec = ModelSpec(name=urllib.parse.unquote(name or "", errors="replace"))
    if version:
        digits = version.lstrip("0") or "0"
        fits = len(digits) <= _VERSION_DIGITS and int(digits) <= MAX_VERSION
        require(fits, f"Failed to convert version: {version} to numeric.")
        spec.version.value = int(digits)
    if label:
        spec.version_label = urllib.parse.unquote(label, errors="replace")
    return spec
