"""Clients of TensorFlow Serving and of the server here: `keras-attn ask --help`.

The folder imports nothing of this package, nor TensorFlow, so it can be copied to any machine; as a
part of an installed `keras_attn` it is imported after Keras. REST needs Python's standard library
alone, gRPC the packages grpcio and protobuf, which the extra `serving` installs.
"""

from .client import Answer, Client, Session
from .events import Token
from .grpc_client import GrpcClient
from .rest_client import RestClient
from .retries import ClientError

__all__ = ["Answer", "Client", "ClientError", "GrpcClient", "RestClient", "Session", "Token"]
