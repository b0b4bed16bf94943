"""Configuration protos of TensorFlow Serving that `tensorflow-serving-api` does not carry.

The messages are those of `session_bundle_config.proto`, `monitoring_config.proto` and
`ssl_config.proto`: the same names, numbers and types, so that one file suits both servers.
"""

from google.protobuf import text_format

from .client.protos import build

_MESSAGES = {
    "Int64Value": {"value": (1, "int64")},
    "StringValue": {"value": (1, "string")},
    "BoolValue": {"value": (1, "bool")},
    "BatchingParameters": {
        "max_batch_size": (1, "Int64Value"),
        "batch_timeout_micros": (2, "Int64Value"),
        "max_enqueued_batches": (3, "Int64Value"),
        "num_batch_threads": (4, "Int64Value"),
        "thread_pool_name": (5, "StringValue"),
        "allowed_batch_sizes": (6, "repeated int64"),
        "pad_variable_length_inputs": (7, "bool"),
        "enable_large_batch_splitting": (8, "BoolValue"),
        "max_execution_batch_size": (9, "Int64Value"),
    },
    "PrometheusConfig": {"enable": (1, "bool"), "path": (2, "string")},
    "MonitoringConfig": {"prometheus_config": (1, "PrometheusConfig")},
    "SSLConfig": {
        "server_key": (1, "string"),
        "server_cert": (2, "string"),
        "custom_ca": (3, "string"),
        "client_verify": (4, "bool"),
    },
}


def read_config(path, name):
    """A text proto from a file.

    Args:
        path: string.
        name: string. "BatchingParameters", "MonitoringConfig" or "SSLConfig".

    Returns:
        The message.

    Raises:
        ValueError: if the file cannot be read or parsed.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return text_format.Parse(file.read(), _CLASSES[name]())
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}.") from error
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a {name} text proto: {error}") from error


_CLASSES = build(_MESSAGES)
