"""TLS for gRPC by an `SSLConfig` file."""

import grpc

from serving.config_protos import read_config


def read_credentials(path=None):
    """The server's credentials.

    Args:
        path: string or None. Text file of an `SSLConfig` proto, which holds the keys and
            certificates themselves, as PEM.

    Returns:
        `grpc.ServerCredentials`, or None without a file.

    Raises:
        ValueError: if the file cannot be read or parsed, or lacks what TLS needs.
    """
    if not path:
        return None
    config = read_config(path, "SSLConfig")
    for name in ("server_key", "server_cert"):
        if "-----BEGIN" not in getattr(config, name):
            raise ValueError(f"{path}: {name} must hold a key or certificate in PEM form.")
    if config.client_verify and not config.custom_ca:
        raise ValueError(f"{path}: client_verify needs the clients' authority in custom_ca.")
    return grpc.ssl_server_credentials(
        [(config.server_key.encode(), config.server_cert.encode())],
        root_certificates=config.custom_ca.encode() or None,
        require_client_auth=config.client_verify,
    )
