"""REST API as an ASGI application."""

import asyncio
import functools
import json
import logging
import re
import urllib.parse

import numpy as np
from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from tensorflow_serving.apis.classification_pb2 import ClassificationRequest
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.regression_pb2 import RegressionRequest

from . import metrics
from .errors import Code, ServingError, invalid_argument
from .examples import read_examples
from .inference import classify, regress
from .json_inputs import read_inputs, read_signature_name
from .json_text import decimals, dump, dump_error, parse_object, write_outputs
from .model_service import SIGNATURE_DEF, model_metadata, model_status
from .predict import input_dtypes, predict
from .request_context import RequestContext, Workers

_log = logging.getLogger(__name__)

_FLAGS = re.IGNORECASE | re.ASCII
_API = re.compile(r"/v1/.*", _FLAGS)
_VERSION = r"(?:(?:/versions/(\d+))|(?:/labels/([^/:]+)))?"
_POST = re.compile(rf"/v1/models/([^/:]+){_VERSION}:(classify|regress|predict)", _FLAGS)
_GET = re.compile(rf"/v1/models(?:/([^/:]+))?{_VERSION}(?:/(metadata))?", _FLAGS)
_MAX_VERSION = 2**63 - 1
_VERSION_DIGITS = len(str(_MAX_VERSION))
_NOT_FOUND = "<html><head><title>404 Not Found</title></head><body>Not Found</body></html>"


def make_rest_application(api, cors=False, metrics_path=None, demo_page=None):
    """Return the ASGI application: the API, and pages beside it.

    Args:
        api: `RestApi`.
        cors: bool. True if answers carry the headers that let web pages of any site read them.
        metrics_path: string or None. Path of the metrics for Prometheus.
        demo_page: `DemoPage` or None. The page at `/`.
    """

    async def show_metrics(_request):
        return Response(metrics.page(), headers={"Content-Type": metrics.CONTENT_TYPE})

    async def show_demo(_request):
        content, headers = demo_page.content()
        return Response(content, headers=headers)

    routes = [Route(metrics_path, show_metrics)] if metrics_path else []
    routes += [Route("/", show_demo)] if demo_page else []
    # Starlette's own routes mind the case and decode `%2F` before they split a path.
    routes.append(Mount("/", api))
    middleware = []
    if cors:
        allowed = {"allow_methods": ["POST", "GET"], "allow_headers": ["Content-Type"]}
        middleware.append(Middleware(CORSMiddleware, allow_origins=["*"], **allowed))
    return Starlette(routes=routes, middleware=middleware)


class RestApi:
    """ASGI application that answers `/v1/models/...` as TensorFlow Serving does.

    The event loop moves bytes; JSON is parsed and models run on threads. Questions for a state have
    a thread of their own, so they are answered while the models are busy.

    Args:
        manager: `ModelManager`.
        num_threads: int. Requests that run models at once; others wait.
        limits: `Limits`.
        timeout_ms: int. Time limit of a request in milliseconds; none if it is not positive.
    """

    def __init__(self, manager, num_threads, limits, timeout_ms):
        self._manager = manager
        self._models = Workers(num_threads, limits.max_waiting_requests)
        self._states = Workers(1, limits.max_waiting_requests)
        self._limits = limits
        self._timeout_ms = timeout_ms if timeout_ms > 0 else None

    async def __call__(self, scope, receive, send):
        """Answer one request."""
        request = Request(scope, receive)
        path = scope["raw_path"].decode("latin-1")
        if not _API.fullmatch(path):
            response = HTMLResponse(_NOT_FOUND, 404)
        elif request.method == "OPTIONS":
            origin = re.search("https?://", request.headers.get("origin", ""))
            response = Response(status_code=200 if origin else 400)
        else:
            try:
                status, content = await self._respond(request, path)
            except ClientDisconnect:
                return
            response = Response(content, status, media_type="application/json")
        await response(scope, receive, send)

    async def _respond(self, request, path):
        """Return the HTTP status and the body."""
        request_context, code = RequestContext(self._timeout_ms), Code.CANCELLED
        record = metrics.RequestRecord("REST")
        workers = self._models if request.method == "POST" else self._states
        try:
            with workers.admit():
                body = await self._read(request, request_context)
                work = functools.partial(
                    self._process, request.method, path, body, request_context, record
                )
                watch = asyncio.create_task(_watch(request.receive, request_context))
                try:
                    content = await workers.run(work, request_context)
                finally:
                    watch.cancel()
            code = Code.OK
            return 200, content
        except ServingError as error:
            code = error.code
            return error.http_status, dump_error(error.message)
        except ClientDisconnect:
            raise
        except Exception:  # The client gets an answer whatever fails.
            _log.exception("%s %s failed", request.method, path)
            code = Code.INTERNAL
            return 500, dump_error("Internal error")
        finally:
            record.end(code)

    async def _read(self, request, request_context):
        """Return the body; stop reading at the size limit and at the time limit."""
        length = request.headers.get("content-length", "")
        self._limits.check_body(int(length) if length.isdecimal() else 0)
        body = bytearray()
        try:
            async with asyncio.timeout(request_context.remaining()):
                async for chunk in request.stream():
                    body += chunk
                    self._limits.check_body(len(body))
        except TimeoutError as error:
            raise ServingError(
                Code.DEADLINE_EXCEEDED, "The request's body did not arrive in time"
            ) from error
        return bytes(body)

    def _process(self, method, path, body, request_context, record):
        pattern = {"POST": _POST, "GET": _GET}.get(method)
        match = pattern.fullmatch(path) if pattern else None
        malformed = invalid_argument(f"Malformed request: {method} {path}")
        if match is None:
            raise malformed
        name, version, label, action = match.groups()
        spec = _model_spec(name, version, label)
        if self._manager.versions(spec.name):  # Made-up names are not kept.
            record.model, record.api = spec.name, action if method == "POST" else ""
        # Paths match in either case, the words at their end do not.
        if action == "predict":
            return dump(self._predict(spec, body, request_context))
        if action == "classify":
            request = ClassificationRequest()
            result = self._infer(classify, request, spec, body, request_context).result
            return dump({"results": [_class_pairs(row) for row in result.classifications]})
        if action == "regress":
            request = RegressionRequest()
            result = self._infer(regress, request, spec, body, request_context).result
            return dump({"results": _decimals(item.value for item in result.regressions)})
        if method == "POST":
            raise malformed
        if not spec.name:
            raise invalid_argument("Missing model name in request.")
        if action == "metadata":
            return self._metadata(spec)
        status = model_status(self._manager, spec)
        return dump(MessageToDict(status, always_print_fields_with_no_presence=True))

    def _predict(self, spec, body, request_context):
        document = parse_object(body)
        self._limits.check_depth(document, body)
        name = read_signature_name(document)
        with self._manager.use(spec) as servable:
            inputs, row = read_inputs(document, input_dtypes(servable, name))
            self._limits.check_tensors(inputs)
            outputs = predict(servable, name, inputs, request_context=request_context)
        return write_outputs(outputs, row)

    def _infer(self, run, request, spec, body, request_context):
        document = parse_object(body)
        self._limits.check_depth(document, body)
        request.model_spec.CopyFrom(spec)
        request.model_spec.signature_name = read_signature_name(document)
        read_examples(document, request.input)
        with self._manager.use(spec) as servable:
            return run(servable, request, request_context, self._limits)

    def _metadata(self, spec):
        options = {"preserving_proto_field_name": True}
        options["always_print_fields_with_no_presence"] = True
        response, signatures = model_metadata(self._manager, spec)
        return json.dumps(
            {
                "model_spec": MessageToDict(response.model_spec, **options),
                "metadata": {SIGNATURE_DEF: MessageToDict(signatures, **options)},
            }
        ).encode()


def _class_pairs(classifications):
    labels = [item.label for item in classifications.classes]
    scores = _decimals(item.score for item in classifications.classes)
    return [list(pair) for pair in zip(labels, scores)]


def _decimals(values):
    return decimals(np.fromiter(values, np.float32), 9)


async def _watch(receive, request_context):
    """Cancel a request when its client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass
    request_context.cancel()


def _model_spec(name, version, label):
    spec = ModelSpec(name=urllib.parse.unquote(name or "", errors="replace"))
    if version:
        digits = version.lstrip("0") or "0"
        if len(digits) > _VERSION_DIGITS or int(digits) > _MAX_VERSION:
            raise invalid_argument(f"Failed to convert version: {version} to numeric.")
        spec.version.value = int(digits)
    if label:
        spec.version_label = urllib.parse.unquote(label, errors="replace")
    return spec
