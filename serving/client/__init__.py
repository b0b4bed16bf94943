"""Clients of TensorFlow Serving and of the server here: `python -m serving.client --help`.

Over REST they need Python's standard library alone, so this folder can be copied to wherever the
questions are asked; it imports nothing from outside. gRPC needs the extra `serving`.
"""

from .client import Answer, Client
from .errors import ClientError
from .grpc_client import GrpcClient
from .rest_client import RestClient
from .session import Session

__all__ = ["Answer", "Client", "ClientError", "GrpcClient", "RestClient", "Session"]
