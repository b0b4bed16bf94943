"""Configuration protos of TensorFlow Serving that `tensorflow-serving-api` does not carry.

The messages are those of `session_bundle_config.proto`, `monitoring_config.proto` and
`ssl_config.proto`: the same names, numbers and types, so that one file suits both servers.
"""

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)

_PACKAGE = "tensorflow.serving"
_WRAPPED = "google.protobuf."
_TYPES = {"bool": 8, "string": 9, "int64": 3}
_MESSAGES = {
    "BatchingParameters": {
        "max_batch_size": (1, _WRAPPED + "Int64Value"),
        "batch_timeout_micros": (2, _WRAPPED + "Int64Value"),
        "max_enqueued_batches": (3, _WRAPPED + "Int64Value"),
        "num_batch_threads": (4, _WRAPPED + "Int64Value"),
        "thread_pool_name": (5, _WRAPPED + "StringValue"),
        "allowed_batch_sizes": (6, "repeated int64"),
        "pad_variable_length_inputs": (7, "bool"),
        "enable_large_batch_splitting": (8, _WRAPPED + "BoolValue"),
        "max_execution_batch_size": (9, _WRAPPED + "Int64Value"),
    },
    "PrometheusConfig": {"enable": (1, "bool"), "path": (2, "string")},
    "MonitoringConfig": {"prometheus_config": (1, f"{_PACKAGE}.PrometheusConfig")},
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


def _build():
    pool = descriptor_pool.DescriptorPool()  # its own: the real definitions may be loaded too
    wrappers = descriptor_pb2.FileDescriptorProto()
    wrappers_pb2.DESCRIPTOR.CopyToProto(wrappers)
    pool.Add(wrappers)
    file = descriptor_pb2.FileDescriptorProto(
        name="serving_config.proto",
        package=_PACKAGE,
        syntax="proto3",
        dependency=[wrappers.name],
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, (number, kind) in fields.items():
            repeated, kind = kind.startswith("repeated "), kind.removeprefix("repeated ")
            field = message.field.add(name=field_name, number=number, label=3 if repeated else 1)
            if kind in _TYPES:
                field.type = _TYPES[kind]
            else:
                field.type, field.type_name = 11, f".{kind}"
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in _MESSAGES
    }


_CLASSES = _build()
