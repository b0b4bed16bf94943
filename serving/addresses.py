"""Where a server listens."""

import socket


def family(host):
    """IPv6 for an address of that kind, IPv4 for any other and for names."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def joined(host, port):
    """Both in one string, as gRPC takes them."""
    return f"[{host}]:{port}" if family(host) == socket.AF_INET6 else f"{host}:{port}"


def check_address(api, host, port):
    """Takes a port and leaves it again: what is wrong is told before models load.

    Nothing listens meanwhile, so nobody takes the server for one that answers.

    Args:
        api: string. What is to listen there.
        host: string. Name or address.
        port: int.

    Raises:
        OSError: if the host is unknown or not of this machine, or the port is in use or not allowed.
    """
    try:
        with socket.socket(family(host)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        raise OSError(f"{api} cannot listen on {host}:{port}: {error.strerror}") from error
