"""gRPC API: PredictionService, ModelService and the standard health service."""

import asyncio
import functools

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow_serving.apis.classification_pb2 import ClassificationRequest
from tensorflow_serving.apis.get_model_metadata_pb2 import GetModelMetadataRequest
from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusRequest
from tensorflow_serving.apis.inference_pb2 import MultiInferenceRequest
from tensorflow_serving.apis.model_management_pb2 import ReloadConfigRequest, ReloadConfigResponse
from tensorflow_serving.apis.model_pb2 import ModelSpec
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.regression_pb2 import RegressionRequest

from .errors import Code, ServingError, require
from .inference import prepare_classify, prepare_multi_inference, prepare_regress
from .metrics import RequestRecord
from .model_service import SIGNATURE_DEF, model_metadata, model_status, reload_models
from .predict import is_small, prepare_request
from .request_context import SHORT_BYTES, RequestContext, Workers, catch_errors

_MAX_MESSAGE_BYTES = 2**31 - 1  # instead of gRPC's 4 MiB
_MAX_ERROR_LENGTH = 1024
_LONGEST_DEADLINE_SECONDS = 1e9
_COUNTED = ("Predict", "Classify", "Regress")
_HEALTH_SERVICES = ("", "ModelService", "PredictionService")  # the real server's names
_Health = health_pb2.HealthCheckResponse


class GrpcApi:
    """Methods of both services; at most `num_threads` calls run models at once, as in `RestApi`."""

    def __init__(self, manager, num_threads, limits):
        self._manager, self._limits = manager, limits
        self._models = Workers(num_threads, limits.max_waiting_requests)
        self._states = Workers(1, limits.max_waiting_requests)

    def handlers(self):
        """Return the `grpc.GenericRpcHandler`s of both services."""
        models, states = self._models, self._states
        services = {
            "PredictionService": {
                "Predict": (PredictRequest, self._run(prepare_request), models),
                "Classify": (ClassificationRequest, self._run(prepare_classify), models),
                "Regress": (RegressionRequest, self._run(prepare_regress), models),
                "MultiInference": (
                    MultiInferenceRequest,
                    self._run(prepare_multi_inference),
                    models,
                ),
                "GetModelMetadata": (GetModelMetadataRequest, _tell(self._metadata), states),
            },
            "ModelService": {
                "GetModelStatus": (GetModelStatusRequest, _tell(self._status), states),
                "HandleReloadConfigRequest": (ReloadConfigRequest, _tell(self._reload), models),
            },
        }
        return [
            grpc.method_handlers_generic_handler(
                f"tensorflow.serving.{service}",
                {name: self._handler(name, *method) for name, method in methods.items()},
            )
            for service, methods in services.items()
        ]

    def _handler(self, name, request_class, answer, workers):
        async def call(content, context):
            record = RequestRecord("GRPC", name)
            request_context = _request_context(context)
            with catch_errors(record if name in _COUNTED else None) as failure, workers.admit():
                async with workers.place():
                    parse = functools.partial(_parse, request_class, content)
                    is_short = len(content) <= SHORT_BYTES
                    request = await workers.call(parse, request_context, is_short)
                    return await answer(request, workers, request_context, record, is_short)
            message = failure.error.message
            if len(message) > _MAX_ERROR_LENGTH:
                message = message[:_MAX_ERROR_LENGTH] + "...TRUNCATED"
            await context.abort(failure.error.code, message)

        return grpc.unary_unary_rpc_method_handler(call)

    def _run(self, prepare):
        """Return the `answer` of a handler to a request whose `GraphCall` a function prepares."""

        async def answer(request, workers, request_context, record, is_short):
            if isinstance(request, MultiInferenceRequest):
                spec = request.tasks[0].model_spec if request.tasks else ModelSpec()
            else:
                spec = request.model_spec
            if self._manager.knows(spec.name):  # Made-up names are not kept.
                record.model = spec.name
            is_short = is_short and is_small(request)
            with self._manager.use(spec) as servable:

                def serialized():
                    return prepare(servable, request, self._limits).then(_serialize)

                return await workers.answer(servable, serialized, request_context, is_short)

        return answer

    def _metadata(self, request):
        message = "GetModelMetadataRequest must specify at least one metadata_field"
        require(request.metadata_field, message)
        for field in request.metadata_field:
            require(field == SIGNATURE_DEF, f"Metadata field {field} is not supported")
        response, signatures = model_metadata(self._manager, request.model_spec)
        response.metadata[SIGNATURE_DEF].Pack(signatures)
        return response

    def _status(self, request):
        return model_status(self._manager, request.model_spec)

    def _reload(self, request):
        refused = "ServerModelConfig type not supported by HandleReloadConfigRequest"
        is_list = request.config.WhichOneof("config") == "model_config_list"
        require(is_list, f"{refused}. Only ModelConfigList is currently supported")
        reload_models(self._manager, request.config.model_config_list.config)
        response = ReloadConfigResponse()
        response.status.SetInParent()
        return response


class HealthService(health_pb2_grpc.HealthServicer):
    """Standard gRPC health service: SERVING until `stop`, which ends the calls of watchers.

    (`grpc_health`'s own servicer would keep the server waiting for its watchers.)
    """

    def __init__(self):
        self._stopping = asyncio.Event()

    def stop(self):
        """Tell all watchers that no new request is taken, and end their calls."""
        self._stopping.set()

    async def Check(self, request, context):
        """Return the state of a service."""
        if request.service not in _HEALTH_SERVICES:
            await context.abort(Code.NOT_FOUND, f"Unknown service: {request.service}")
        stopping = self._stopping.is_set()
        return _Health(status=_Health.NOT_SERVING if stopping else _Health.SERVING)

    async def Watch(self, request, context):
        """Stream the state of a service whenever it changes."""
        known = request.service in _HEALTH_SERVICES
        if not self._stopping.is_set():
            status = _Health.SERVING if known else _Health.SERVICE_UNKNOWN
            await context.write(_Health(status=status))
            await self._stopping.wait()
        if known:
            await context.write(_Health(status=_Health.NOT_SERVING))


def make_grpc_server(api, max_request_bytes, address, credentials=None, health=None):
    """Return a `grpc.aio.Server` that is ready to start; call it on the event loop.

    It raises a `RuntimeError` if the address is taken.
    """
    options = [
        ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", max_request_bytes),
        ("grpc.so_reuseport", 0),  # a second server on the port is an error, not a partner
    ]
    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers(api.handlers())
    if health:
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
    if credentials:
        server.add_secure_port(address, credentials)
    else:
        server.add_insecure_port(address)
    return server


def _parse(request_class, content):
    try:
        request = request_class.FromString(content)
    except DecodeError as error:  # with the code that gRPC gives in every language
        raise ServingError(Code.INTERNAL, "The bytes are not this call's request") from error
    if "model_spec" in request.DESCRIPTOR.fields_by_name:
        require(request.HasField("model_spec"), "Missing ModelSpec")
    return request


def _serialize(response):
    return response.SerializeToString()


def _tell(function):
    """Return the `answer` of a handler by a function of the request, which runs on a thread."""

    async def answer(request, workers, request_context, *_):
        return _serialize(await workers.call(lambda: function(request), request_context))

    return answer


def _request_context(context):
    seconds = context.time_remaining()
    # Without a deadline gRPC gives None or some hundred million years.
    limited = seconds is not None and seconds <= _LONGEST_DEADLINE_SECONDS
    return RequestContext(seconds * 1000 if limited else None)
