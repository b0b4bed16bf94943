"""REST API as an ASGI application."""

import asyncio
import functools
import re
import urllib.parse

import numpy as np
from google.protobuf.json_format import MessageToDict
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route, Router
from tensorflow_serving.apis.classification_pb2 import ClassificationRequest
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.regression_pb2 import RegressionRequest

from keras_attn.export.versions import MAX_VERSION

from . import metrics
from .content_encoding import decode_body
from .errors import Code, ServingError, require
from .event_stream import EventStream
from .examples import read_examples
from .inference import classify, regress
from .json_inputs import read_inputs, read_signature_name
from .json_text import decimals, dump, dump_error, parse_object, write_outputs
from .model_service import SIGNATURE_DEF, model_metadata, model_status
from .predict import input_dtypes, optional_inputs, predict
from .request_context import RequestContext, Workers, catch_errors
from .streaming import StreamRequest, stream_tokens
from .tensors import check_tensors

_FLAGS = re.IGNORECASE | re.ASCII
_API = re.compile(r"/v1/.*", _FLAGS)
_VERSION = r"(?:(?:/versions/(\d+))|(?:/labels/([^/:]+)))?"
_POST = re.compile(rf"/v1/models/([^/:]+){_VERSION}:(classify|regress|predict)", _FLAGS)
_STREAM = re.compile(rf"/v1/models/([^/:]+){_VERSION}:stream", _FLAGS)  # our own
_GET = re.compile(rf"/v1/models(?:/([^/:]+))?{_VERSION}(?:/(metadata))?", _FLAGS)
_VERSION_DIGITS = len(str(MAX_VERSION))
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
    # Starlette's own routes mind the case and decode `%2F` before they split a path.
    routes.append(Mount("/", api))
    allowed = {"allow_methods": ["POST", "GET"], "allow_headers": ["Content-Type"]}
    middleware = [Middleware(CORSMiddleware, allow_origins=["*"], **allowed)] if cors else []
    return Router(routes, redirect_slashes=False, middleware=middleware)


class RestApi:
    """ASGI application that answers `/v1/models/...` as TensorFlow Serving does, and `:stream`.

    The event loop moves bytes; JSON is parsed and models run on threads, at most `num_threads` at
    once. Questions for a state have a thread of their own, for when the models are busy. A request
    has a time limit of `timeout_ms`, if that is positive.
    """

    def __init__(self, manager, num_threads, limits, timeout_ms):
        self._manager = manager
        self._models = Workers(num_threads, limits.max_waiting_requests)
        self._states = Workers(1, limits.max_waiting_requests)
        self._limits, self._timeout_ms = limits, timeout_ms if timeout_ms > 0 else None

    async def __call__(self, scope, receive, send):
        """Answer one request."""
        request = Request(scope, receive)
        path = scope["raw_path"].decode("latin-1")
        if request.method == "POST" and (match := _STREAM.fullmatch(path)):
            await self._stream(request, match, EventStream(scope, receive, send))
            return
        if not _API.fullmatch(path):
            response = HTMLResponse(_NOT_FOUND, 404)
        elif request.method == "OPTIONS":
            origin = re.search("https?://", request.headers.get("origin", ""))
            response = Response(status_code=200 if origin else 400)
        else:
            status, content = await self._respond(request, path)
            response = Response(content, status, media_type="application/json")
        await response(scope, receive, send)

    async def _respond(self, request, path):
        """Return the HTTP status and the body."""
        request_context, record = RequestContext(self._timeout_ms), metrics.RequestRecord("REST")
        workers = self._models if request.method == "POST" else self._states
        with catch_errors(record) as failure:
            body = await self._read(request, request_context, workers)
            arguments = request, path, body, request_context, record
            with workers.admit():
                watch = asyncio.create_task(_watch(request.receive, request_context))
                try:
                    work = functools.partial(self._process, *arguments)
                    return 200, await workers.run(work, request_context)
                finally:
                    watch.cancel()
        return failure.error.http_status, dump_error(failure.error.message)

    async def _stream(self, request, match, answer):
        """Send an event for each token; between two tokens the thread runs other requests."""
        request_context, record = RequestContext(self._timeout_ms), metrics.RequestRecord("REST")
        with catch_errors(record) as failure:
            body = await self._read(request, request_context, self._models)
            with self._models.admit():
                watch = asyncio.create_task(_watch(request.receive, request_context))
                events = self._events(request, match, body, request_context, record)
                try:
                    following = functools.partial(next, events, None)
                    while event := await self._models.run(following, request_context):
                        await answer.send(event)
                finally:
                    watch.cancel()
                    await self._models.run(events.close, request_context)
        await answer.end(failure.error)

    def _events(self, request, match, body, request_context, record):
        """Yield the events of a streaming request, a generator that lends the model."""
        spec = _model_spec(*match.groups())
        if self._manager.knows(spec.name):
            record.model, record.api = spec.name, "stream"
        wanted = StreamRequest.read(self._parse(request, body))
        with self._manager.use(spec) as servable:
            yield from stream_tokens(servable, wanted, self._limits, request_context)

    async def _read(self, request, request_context, workers):
        """Return the body; stop reading at the size limit and at the time limit.

        A body that arrives slowly keeps no other request out, since it does not count yet.
        """
        workers.check_load()
        length = request.headers.get("content-length", "")
        self._limits.check_body(int(length) if length.isdecimal() else 0)
        body = bytearray()
        try:
            async with asyncio.timeout(request_context.remaining()):
                async for chunk in request.stream():
                    body += chunk
                    self._limits.check_body(len(body))
        except TimeoutError as error:
            message = "The request's body did not arrive in time"
            raise ServingError(Code.DEADLINE_EXCEEDED, message) from error
        except ClientDisconnect as error:
            raise ServingError(Code.CANCELLED, "The client has gone away") from error
        return bytes(body)

    def _parse(self, request, body):
        """Return the JSON object of a body."""
        body = decode_body(body, request.headers.get("content-encoding", ""), self._limits)
        document = parse_object(body)
        self._limits.check_depth(document, body)
        return document

    def _process(self, request, path, body, request_context, record):
        method = request.method
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
            answer = self._metadata if action == "metadata" else self._status
            return dump(answer(spec))
        require(action in ("predict", "classify", "regress"), malformed)
        document = self._parse(request, body)
        spec.signature_name = read_signature_name(document)
        return dump(getattr(self, f"_{action}")(spec, document, request_context))

    def _predict(self, spec, document, request_context):
        name = spec.signature_name
        with self._manager.use(spec) as servable:
            dtypes, optional = input_dtypes(servable, name), optional_inputs(servable, name)
            inputs, row = read_inputs(document, dtypes, optional)
            check_tensors(inputs, self._limits)
            outputs = predict(servable, name, inputs, request_context=request_context)
        return write_outputs(outputs, row)

    def _classify(self, spec, document, request_context):
        request = ClassificationRequest(model_spec=spec)
        result = self._infer(classify, request, document, request_context).result
        rows = [row.classes for row in result.classifications]
        scores = [_decimals(item.score for item in row) for row in rows]
        pairs = [
            zip([item.label for item in row], row_scores) for row, row_scores in zip(rows, scores)
        ]
        return {"results": [list(map(list, pair)) for pair in pairs]}

    def _regress(self, spec, document, request_context):
        request = RegressionRequest(model_spec=spec)
        result = self._infer(regress, request, document, request_context).result
        return {"results": _decimals(item.value for item in result.regressions)}

    def _infer(self, run, request, document, request_context):
        read_examples(document, request.input)
        with self._manager.use(request.model_spec) as servable:
            return run(servable, request, request_context, self._limits)

    def _metadata(self, spec):
        response, signatures = model_metadata(self._manager, spec)
        as_written = functools.partial(_to_json, preserving_proto_field_name=True)
        metadata = {SIGNATURE_DEF: as_written(signatures)}
        return {"model_spec": as_written(response.model_spec), "metadata": metadata}

    def _status(self, spec):
        return _to_json(model_status(self._manager, spec))


def _decimals(values):
    return decimals(np.fromiter(values, np.float32), 9)


_to_json = functools.partial(MessageToDict, always_print_fields_with_no_presence=True)


async def _watch(receive, request_context):
    """Cancel a request when its client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass
    request_context.cancel()


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
