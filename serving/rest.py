"""The REST API as an ASGI application."""

import asyncio
import concurrent.futures
import json
import logging
import re
import urllib.parse

import numpy as np
from google.protobuf.json_format import MessageToDict
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from tensorflow_serving.apis.classification_pb2 import ClassificationRequest
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.regression_pb2 import RegressionRequest

from . import metrics
from .caller import RequestContext
from .errors import Code, ServingError, invalid_argument
from .examples import read_examples
from .infer import classify, regress
from .json_inputs import read_inputs, read_signature_name
from .json_outputs import decimals, write_outputs
from .json_text import dump, dump_error, parse_object
from .model_info import SIGNATURE_DEF, model_metadata, model_status
from .predict import input_dtypes, predict

_log = logging.getLogger(__name__)

_FLAGS = re.IGNORECASE | re.ASCII
_API = re.compile(r"/v1/.*", _FLAGS)
_VERSION = r"(?:(?:/versions/(\d+))|(?:/labels/([^/:]+)))?"
_POST = re.compile(rf"/v1/models/([^/:]+){_VERSION}:(classify|regress|predict)", _FLAGS)
_GET = re.compile(rf"/v1/models(?:/([^/:]+))?{_VERSION}(?:/(metadata))?", _FLAGS)
_MAX_VERSION = 2**63 - 1
_VERSION_DIGITS = len(str(_MAX_VERSION))
_NOT_FOUND = "<html><head><title>404 Not Found</title></head><body>Not Found</body></html>"
_CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "POST, GET",
    "Access-Control-Allow-Headers": "Content-Type",
}


class _Lane:
    """Threads, and the number of requests that they have yet to answer."""

    def __init__(self, num_threads, name):
        self.num_threads = num_threads
        self.pool = concurrent.futures.ThreadPoolExecutor(num_threads, name)
        self.unanswered = 0


class RestApi:
    """Answers `/v1/models/...` as TensorFlow Serving does.

    JSON and TensorFlow run on a pool of threads; the event loop only moves bytes.

    Args:
        manager: `ModelManager`.
        num_threads: int. Requests that run models at once; others wait.
        limits: `Limits`.
        timeout_ms: int. Time limit of a request in milliseconds; none if it is not positive.
        cors: bool. Whether answers carry the headers that let web pages of any site read them.
        metrics_path: string or None. Where the page for Prometheus is.
        demo_page: `DemoPage` or None. What is at `/`.
    """

    def __init__(
        self,
        manager,
        num_threads,
        limits,
        timeout_ms,
        cors=False,
        metrics_path=None,
        demo_page=None,
    ):
        self._manager = manager
        self._models = _Lane(num_threads, "rest")
        # Whoever asks whether the server is well must be told when it is busy, too.
        self._states = _Lane(1, "rest-states")
        self._limits = limits
        self._timeout_ms = timeout_ms if timeout_ms > 0 else None
        self._headers = _CORS if cors else {}
        self._metrics_path = metrics_path
        self._demo_page = demo_page

    async def __call__(self, scope, receive, send):
        """The ASGI entry point."""
        request = Request(scope, receive)
        # The path as it was sent: a name may hold an escaped slash.
        path = scope["raw_path"].decode("latin-1")
        if path == self._metrics_path:
            response = Response(metrics.page(), headers={"Content-Type": metrics.CONTENT_TYPE})
        elif path == "/" and request.method == "GET" and self._demo_page:
            content, headers = self._demo_page.content()
            response = Response(content, headers=headers)
        elif not _API.fullmatch(path):
            response = HTMLResponse(_NOT_FOUND, 404)
        elif request.method == "OPTIONS":
            origin = re.search("https?://", request.headers.get("origin", ""))
            response = Response(status_code=200 if origin else 400, headers=self._headers)
        else:
            try:
                status, content = await self._respond(request, path)
            except ClientDisconnect:
                return
            response = Response(content, status, self._headers, media_type="application/json")
        await response(scope, receive, send)

    async def _respond(self, request, path):
        caller, record, code = RequestContext(self._timeout_ms), metrics.Record("REST"), Code.CANCELLED
        lane = self._models if request.method == "POST" else self._states
        lane.unanswered += 1
        try:
            self._limits.check_waiting(lane.unanswered - lane.num_threads)
            body = await self._read(request, caller)
            watch = asyncio.create_task(_watch(request.receive, caller))
            try:
                code, answer = await asyncio.get_running_loop().run_in_executor(
                    lane.pool, self._answer, request.method, path, body, caller, record
                )
                return answer
            finally:
                watch.cancel()
        except ServingError as error:
            code = error.code
            return error.http_status, dump_error(error.message)
        finally:
            lane.unanswered -= 1
            record.end(code)

    async def _read(self, request, caller):
        """The body, no further than the limit: a client that sends no end is cut off."""
        length = request.headers.get("content-length", "")
        self._limits.check_body(int(length) if length.isdecimal() else 0)
        body = bytearray()
        try:
            async with asyncio.timeout(caller.remaining()):
                async for chunk in request.stream():
                    body += chunk
                    self._limits.check_body(len(body))
        except TimeoutError as error:
            raise ServingError(
                Code.DEADLINE_EXCEEDED, "The request's body did not arrive in time"
            ) from error
        return bytes(body)

    def _answer(self, method, path, body, caller, record):
        try:
            return Code.OK, (200, self._process(method, path, body, caller, record))
        except ServingError as error:
            return error.code, (error.http_status, dump_error(error.message))
        except Exception:  # Whatever a model or this server does wrong, the client gets an answer.
            _log.exception("%s %s failed", method, path)
            return Code.INTERNAL, (500, dump_error("Internal error"))

    def _process(self, method, path, body, caller, record):
        pattern = {"POST": _POST, "GET": _GET}.get(method)
        match = pattern.fullmatch(path) if pattern else None
        malformed = invalid_argument(f"Malformed request: {method} {path}")
        if match is None:
            raise malformed
        name, version, label, action = match.groups()
        spec = _model_spec(name, version, label)
        if self._manager.versions(spec.name):  # Names that anyone makes up are not kept.
            record.model, record.api = spec.name, action if method == "POST" else ""
        # Paths match in either case, the words at their end do not.
        if action == "predict":
            return dump(self._predict(spec, body, caller))
        if action == "classify":
            result = self._infer(classify, ClassificationRequest(), spec, body, caller).result
            return dump({"results": [_class_pairs(row) for row in result.classifications]})
        if action == "regress":
            result = self._infer(regress, RegressionRequest(), spec, body, caller).result
            return dump({"results": _decimals(item.value for item in result.regressions)})
        if method == "POST":
            raise malformed
        if not spec.name:
            raise invalid_argument("Missing model name in request.")
        if action == "metadata":
            return self._metadata(spec)
        status = model_status(self._manager, spec)
        return dump(MessageToDict(status, always_print_fields_with_no_presence=True))

    def _predict(self, spec, body, caller):
        document = parse_object(body)
        self._limits.check_depth(document, body)
        signature_name = read_signature_name(document)
        with self._manager.use(spec) as servable:
            inputs, row = read_inputs(document, input_dtypes(servable, signature_name))
            self._limits.check_tensors(inputs)
            outputs = predict(servable, signature_name, inputs, caller=caller)
        return write_outputs(outputs, row)

    def _infer(self, run, request, spec, body, caller):
        document = parse_object(body)
        self._limits.check_depth(document, body)
        request.model_spec.CopyFrom(spec)
        request.model_spec.signature_name = read_signature_name(document)
        read_examples(document, request.input)
        with self._manager.use(spec) as servable:
            return run(servable, request, caller, self._limits)

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
    return [
        list(pair)
        for pair in zip(labels, _decimals(item.score for item in classifications.classes))
    ]


def _decimals(values):
    return decimals(np.fromiter(values, np.float32), 9)


async def _watch(receive, caller):
    """Tells the caller's request when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass
    caller.cancel()


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
