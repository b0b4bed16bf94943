"""Client over gRPC."""

import numbers

from .client import Client
from .retries import ClientError
from .tensors import read_tensor, write_tensor

_SIGNATURES = "signature_def"
_TICK = 0.05  # seconds
# CANCELLED is the answer of a stopping server to a call that has just come in.
_RETRYABLE = ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "CANCELLED")
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
        **options: `timeout`, `retries` and `headers`, as of `RestClient`.

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
        **options,
    ):
        _check_arguments(address, model_name, version, label)
        super().__init__(f"{address}, model {model_name}", **options)
        try:
            import grpc

            from . import messages_pb2
        except ImportError as error:
            raise ImportError(f"{error}. gRPC needs: pip install 'keras_attn[serving]'") from error
        self._rpc_error, self._messages = grpc.RpcError, messages_pb2
        self._spec = messages_pb2.ModelSpec(name=model_name, version_label=label)
        if version is not None:
            self._spec.version.value = version
        if credentials:
            self._channel = grpc.secure_channel(address, credentials, _CHANNEL)
        else:
            self._channel = grpc.insecure_channel(address, _CHANNEL)
        self._metadata = [(name.lower(), value) for name, value in self._headers.items()]
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
            outputs = self._call("Predict", request, limit).outputs
        except ClientError:
            self._signatures = None  # a new version may have others
            raise
        return {name: read_tensor(name, proto) for name, proto in outputs.items()}

    def _signature(self, name, limit):
        return self._named(name, self._known_signatures(limit), f"signature named {name}")

    def _signature_names(self, limit):
        return list(self._known_signatures(limit))

    def _known_signatures(self, limit):
        signatures = self._signatures  # another thread may forget them meanwhile
        if signatures is None:
            fields = {"model_spec": self._spec, "metadata_field": [_SIGNATURES]}
            request = self._messages.GetModelMetadataRequest(**fields)
            content = self._call("GetModelMetadata", request, limit).metadata[_SIGNATURES].value
            message = self._messages.SignatureDefMap.FromString(content)
            signatures = self._signatures = message.signature_def
        return signatures

    def _named(self, name, known, shown):
        if name not in known:
            names = ", ".join(sorted(known))
            raise ClientError(f"{self.address} has no {shown}. There are: {names}.")
        return known[name]

    def _call(self, name, request, limit):
        method = self._channel.unary_unary(
            f"/tensorflow.serving.PredictionService/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=getattr(self._messages, f"{name}Response").FromString,
        )
        try:
            return method(request, timeout=limit.wait(), metadata=self._metadata)
        except ValueError as error:  # of a channel that is closed
            raise ClientError(f"The client of {self.address} cannot send: {error}") from error
        except self._rpc_error as error:
            code = error.code().name
            # The server reports its own limits; this client's may end a tick of the clock early.
            if code == "DEADLINE_EXCEEDED" and limit.left() < _TICK:
                raise limit.error(self.address) from error
            message = f"{self.address} answered {code}: {error.details()}"
            raise ClientError(message, code in _RETRYABLE) from error


def _check_arguments(address, model_name, version, label):
    """Refuse what does not name a server and one model or version."""
    is_text = isinstance(address, str) and address
    if not is_text or address.startswith(("http://", "https://")):
        raise ValueError(f"`address` must be HOST:PORT. Received: address={address!r}.")
    if not isinstance(model_name, str) or not model_name:
        raise ValueError(f"`model_name` must be a string. Received: model_name={model_name!r}.")
    if version is not None and label is not None:
        received = f"Received: version={version}, label={label!r}."
        raise ValueError(f"A `version` or a `label` is given, not both. {received}")
    is_whole = isinstance(version, numbers.Integral) and not isinstance(version, bool)
    if version is not None and not (is_whole and -(2**63) <= version < 2**63):
        raise ValueError(f"`version` must be a whole number. Received: version={version!r}.")
    if label is not None and not isinstance(label, str):
        raise ValueError(f"`label` must be a string. Received: label={label!r}.")
