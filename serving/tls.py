"""TLS for gRPC, configured by an `SSLConfig` file."""

import os
import ssl
import tempfile

import grpc

from .client.messages_pb2 import SSLConfig
from .config_files import read_config


def read_credentials(path=None):
    """Return the server's `grpc.ServerCredentials`, or None without a file.

    Args:
        path: string or None. Text file of an `SSLConfig` proto, which holds the keys and
            certificates themselves, as PEM.

    Raises:
        ValueError: if the file cannot be read or parsed, or its key and certificate are missing or
            do not fit each other.
    """
    if not path:
        return None
    config = read_config(path, SSLConfig)
    for name in ("server_key", "server_cert"):
        if "-----BEGIN" not in getattr(config, name):
            raise ValueError(f"{path}: {name} must hold a key or certificate in PEM form.")
    if config.client_verify and not config.custom_ca:
        raise ValueError(f"{path}: client_verify needs the clients' authority in custom_ca.")
    _check_pair(path, config)
    return grpc.ssl_server_credentials(
        [(config.server_key.encode(), config.server_cert.encode())],
        root_certificates=config.custom_ca.encode() or None,
        require_client_auth=config.client_verify,
    )


def _check_pair(path, config):
    """Refuse keys with which gRPC would fail, without a reason, when the port is opened."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    expected = "server_key and server_cert must be a key without a password and its certificate"
    with tempfile.TemporaryDirectory() as folder:  # readable by this user only
        paths = [os.path.join(folder, name) for name in ("server_cert", "server_key")]
        for file_path in paths:
            with open(file_path, "w", encoding="utf-8") as file:
                file.write(getattr(config, os.path.basename(file_path)))
        try:
            # With an empty password OpenSSL refuses a key that needs one, and does not prompt.
            context.load_cert_chain(*paths, password="")
            expected = "custom_ca must be a certificate in PEM form"
            if config.custom_ca:
                context.load_verify_locations(cadata=config.custom_ca)
        except (ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise ValueError(f"{path}: {expected}. Received: {reason}.") from error
