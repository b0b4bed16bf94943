"""Free ports of this machine, and clusters of processes at them."""

import contextlib
import json
import socket


def free_ports(count):
    """Return different ports on which nothing listens: all are held before any is released."""
    with contextlib.ExitStack() as held:
        address = ("127.0.0.1", 0)
        listeners = [held.enter_context(socket.create_server(address)) for _ in range(count)]
        return [listener.getsockname()[1] for listener in listeners]


def cluster_settings(count):
    """Return the TF_CONFIG of each of so many processes on this machine."""
    workers = [f"localhost:{port}" for port in free_ports(count)]
    tasks = [{"type": "worker", "index": index} for index in range(count)]
    return [json.dumps({"cluster": {"worker": workers}, "task": task}) for task in tasks]
