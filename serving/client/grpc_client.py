"""Client over gRPC."""

from .arguments import check_grpc_model, checked_headers
from .client import Client
from .retries import ClientError
from .tensors import read_tensor, write_tensor

_SIGNATURES = "signature_def"
_TICK = 0.05  # seconds
# CANCELLED is the answer of a stopping server to a call that has just come in.
_PASSING = ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "CANCELLED")
_CHANNEL = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # The next attempt reconnects at once, not after gRPC's second or more.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
]


class GrpcClient(Client):
    """Served model over gRPC. Its signatures are fetched once, since lists do not show their dtype.

    Args:
        address: string. `HOST:PORT`.
        model_name: string.
        version: int. By default the newest.
        label: string. Label of a version, in place of `version`.
        credentials: `grpc.ChannelCredentials`, for TLS.
        timeout: float. Seconds for a call, all attempts together.
        retries: int. Most attempts after the first.
        headers: dict of strings, sent with each request, as for a gateway before the server.

    Raises:
        ImportError: if the packages of the extra `serving` are missing.
        ValueError: if an argument is wrong.

    Reference: https://www.tensorflow.org/tfx/serving/architecture
    """

    def __init__(
        self,
        address,
        model_name="default",
        *,
        version=None,
        label=None,
        credentials=None,
        timeout=60.0,
        retries=4,
        headers=None,
    ):
        check_grpc_model(address, model_name, version, label)
        super().__init__(f"{address}, model {model_name}", timeout, retries)
        headers = checked_headers(headers)
        try:
            import grpc

            from . import messages_pb2
        except ImportError as error:
            raise ImportError(f"{error}. gRPC needs: pip install 'keras_attn[serving]'") from error
        self._rpc_error = grpc.RpcError
        self._messages = messages_pb2
        self._spec = messages_pb2.ModelSpec(name=model_name, version_label=label)
        if version is not None:
            self._spec.version.value = version
        if credentials:
            self._channel = grpc.secure_channel(address, credentials, _CHANNEL)
        else:
            self._channel = grpc.insecure_channel(address, _CHANNEL)
        self._headers = [(name.lower(), value) for name, value in headers.items()]
        self._signatures = None

    def close(self):
        self._channel.close()

    def _predict(self, inputs, signature_name, limit):
        signature = self._signature(signature_name, limit)
        request = self._messages.PredictRequest(model_spec=self._spec)
        request.model_spec.signature_name = signature_name
        for name, value in inputs.items():
            info = self._named(name, signature.inputs, f"input named {name} in {signature_name}")
            write_tensor(request.inputs[name], name, value, info.dtype)
        try:
            response = self._call("Predict", request, limit)
        except ClientError:
            self._signatures = None  # a new version may have others
            raise
        return {name: read_tensor(name, proto) for name, proto in response.outputs.items()}

    def _signature(self, name, limit):
        signatures = self._signatures
        if signatures is None:
            request = self._messages.GetModelMetadataRequest(model_spec=self._spec)
            request.metadata_field.append(_SIGNATURES)
            response = self._call("GetModelMetadata", request, limit)
            found = self._messages.SignatureDefMap()
            found.ParseFromString(response.metadata[_SIGNATURES].value)
            signatures = self._signatures = found.signature_def
        return self._named(name, signatures, f"signature named {name}")

    def _named(self, name, known, shown):
        if name not in known:
            names = ", ".join(sorted(known))
            raise ClientError(f"{self.place} has no {shown}. There are: {names}.")
        return known[name]

    def _call(self, name, request, limit):
        method = self._channel.unary_unary(
            f"/tensorflow.serving.PredictionService/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=getattr(self._messages, f"{name}Response").FromString,
        )
        try:
            return method(request, timeout=limit.wait(), metadata=self._headers)
        except ValueError as error:  # of a channel that is closed
            raise ClientError(f"The client of {self.place} cannot ask: {error}") from error
        except self._rpc_error as error:
            code = error.code().name
            # The server reports its own limits; this client's may end a tick of the clock early.
            if code == "DEADLINE_EXCEEDED" and limit.left() < _TICK:
                raise limit.error(self.place) from error
            message = f"{self.place} answered {code}: {error.details()}"
            raise ClientError(message, code in _PASSING) from error
