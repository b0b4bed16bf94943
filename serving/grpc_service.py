"""The gRPC API: PredictionService and ModelService."""

import contextlib
import logging

import grpc
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc
from tensorflow_serving.apis.model_management_pb2 import ReloadConfigResponse
from tensorflow_serving.apis.model_pb2 import ModelSpec

from .caller import RequestContext
from .errors import Code, ServingError, invalid_argument
from .grpc_admission import Admission, CountedPool
from .infer import classify, multi_inference, regress
from .metrics import Record
from .model_info import SIGNATURE_DEF, model_metadata, model_status
from .predict_request import run_predict_request
from .reload import reload_models

_log = logging.getLogger(__name__)

_MAX_MESSAGE_BYTES = 2**31 - 1  # instead of gRPC's 4 MiB
_MAX_ERROR_LENGTH = 1024
_LONGEST_DEADLINE_SECONDS = 1e9
_STATUS = {code.value[0]: code for code in grpc.StatusCode}


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Runs models and describes their signatures.

    Args:
        manager: `ModelManager`.
        limits: `Limits`.
    """

    def __init__(self, manager, limits):
        self._manager = manager
        self._limits = limits

    def Predict(self, request, context):
        """Runs a signature on the request's tensors."""
        with _errors_to(context, record := Record("GRPC", "Predict")):
            _check_model_spec(request)
            self._name(record, request.model_spec)
            with self._manager.use(request.model_spec) as servable:
                return run_predict_request(servable, request, _caller(context), self._limits)

    def Classify(self, request, context):
        """Runs a signature on the request's examples and gives classes and scores."""
        return self._infer(classify, request, context, "Classify")

    def Regress(self, request, context):
        """Runs a signature on the request's examples and gives one number for each."""
        return self._infer(regress, request, context, "Regress")

    def MultiInference(self, request, context):
        """Runs several signatures on the same examples."""
        with _errors_to(context):
            spec = request.tasks[0].model_spec if request.tasks else ModelSpec()
            with self._manager.use(spec) as servable:
                return multi_inference(servable, request, _caller(context), self._limits)

    def GetModelMetadata(self, request, context):
        """Gives the signatures; `signature_def` is the only field there is."""
        with _errors_to(context):
            _check_model_spec(request)
            if not request.metadata_field:
                raise invalid_argument(
                    "GetModelMetadataRequest must specify at least one metadata_field"
                )
            for field in request.metadata_field:
                if field != SIGNATURE_DEF:
                    raise invalid_argument(f"Metadata field {field} is not supported")
            response, signatures = model_metadata(self._manager, request.model_spec)
            response.metadata[SIGNATURE_DEF].Pack(signatures)
            return response

    def _infer(self, run, request, context, api):
        with _errors_to(context, record := Record("GRPC", api)):
            _check_model_spec(request)
            self._name(record, request.model_spec)
            with self._manager.use(request.model_spec) as servable:
                return run(servable, request, _caller(context), self._limits)

    def _name(self, record, model_spec):
        if self._manager.versions(model_spec.name):  # Names that anyone makes up are not kept.
            record.model = model_spec.name


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """Tells which versions are loaded and changes which models are served.

    Args:
        manager: `ModelManager`.
    """

    def __init__(self, manager):
        self._manager = manager

    def GetModelStatus(self, request, context):
        """Gives the states of a model's versions."""
        with _errors_to(context):
            _check_model_spec(request)
            return model_status(self._manager, request.model_spec)

    def HandleReloadConfigRequest(self, request, context):
        """Serves the models of the request's `model_config_list` instead of those before."""
        with _errors_to(context):
            if request.config.WhichOneof("config") != "model_config_list":
                raise invalid_argument(
                    "ServerModelConfig type not supported by HandleReloadConfigRequest. Only "
                    "ModelConfigList is currently supported"
                )
            reload_models(self._manager, request.config.model_config_list.config)
            response = ReloadConfigResponse()
            response.status.SetInParent()
            return response


def make_grpc_server(manager, num_threads, limits):
    """A gRPC server with both services; the caller adds a port and starts it.

    Args:
        manager: `ModelManager`.
        num_threads: int. Calls that run at once; others wait.
        limits: `Limits`.

    Returns:
        `grpc.Server`.
    """
    pool = CountedPool(num_threads, "grpc")
    server = grpc.server(
        pool,
        interceptors=[Admission(pool, limits)],
        options=[
            ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
            ("grpc.max_receive_message_length", limits.max_request_bytes),
            ("grpc.so_reuseport", 0),  # a second server on the port is an error, not a partner
        ],
    )
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        PredictionService(manager, limits), server
    )
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(ModelService(manager), server)
    return server


def _caller(context):
    remaining = context.time_remaining()
    # Without a deadline gRPC gives None or some hundred million years.
    if remaining is None or remaining > _LONGEST_DEADLINE_SECONDS:
        caller = RequestContext()
    else:
        caller = RequestContext(remaining * 1000)
    if not context.add_callback(caller.cancel):
        caller.cancel()
    return caller


def _check_model_spec(request):
    if not request.HasField("model_spec"):
        raise invalid_argument("Missing ModelSpec")


@contextlib.contextmanager
def _errors_to(context, record=None):
    code = Code.OK
    try:
        yield
    except ServingError as error:
        code, message = error.code, error.message
        if len(message) > _MAX_ERROR_LENGTH:
            message = message[:_MAX_ERROR_LENGTH] + "...TRUNCATED"
    except Exception:  # Whatever a model or this server does wrong, the client gets an answer.
        _log.exception("A gRPC call failed")
        code, message = Code.INTERNAL, "Internal error"
    if record:
        record.end(code)
    if code != Code.OK:
        context.abort(_STATUS[code], message)
