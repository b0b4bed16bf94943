"""The messages that a client sends and reads, without TensorFlow.

The generated ones import it, and take seconds. These are the same on the wire: the same numbers and
types, for those fields that are used; an enum is its number.
"""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_TYPES = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
}
_MESSAGE, _OPTIONAL, _REPEATED = 11, 1, 3
_PACKAGE = "keras_attn"
# By name, each field's number and kind; a map's keys are strings.
MESSAGES = {
    "Int64Value": {"value": (1, "int64")},
    "Any": {"type_url": (1, "string"), "value": (2, "bytes")},
    "Dim": {"size": (1, "int64")},
    "TensorShapeProto": {"dim": (2, "repeated Dim")},
    "TensorProto": {
        "dtype": (1, "int32"),
        "tensor_shape": (2, "TensorShapeProto"),
        "tensor_content": (4, "bytes"),
        "float_val": (5, "repeated float"),
        "double_val": (6, "repeated double"),
        "int_val": (7, "repeated int32"),
        "string_val": (8, "repeated bytes"),
        "int64_val": (10, "repeated int64"),
        "bool_val": (11, "repeated bool"),
        "uint32_val": (16, "repeated uint32"),
        "uint64_val": (17, "repeated uint64"),
    },
    "TensorInfo": {"dtype": (2, "int32")},
    "SignatureDef": {"inputs": (1, "map TensorInfo")},
    "SignatureDefMap": {"signature_def": (1, "map SignatureDef")},
    "ModelSpec": {
        "name": (1, "string"),
        "version": (2, "Int64Value"),
        "signature_name": (3, "string"),
        "version_label": (4, "string"),
    },
    "GetModelMetadataRequest": {
        "model_spec": (1, "ModelSpec"),
        "metadata_field": (2, "repeated string"),
    },
    "GetModelMetadataResponse": {"metadata": (2, "map Any")},
    "PredictRequest": {"model_spec": (1, "ModelSpec"), "inputs": (2, "map TensorProto")},
    "PredictResponse": {"outputs": (1, "map TensorProto")},
}


def build(messages=MESSAGES):
    """The classes by name.

    Args:
        messages: dict as `MESSAGES`.
    """
    file = descriptor_pb2.FileDescriptorProto(
        name="keras_attn.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            label, _, kind = kind.rpartition(" ")
            if label == "map":
                entry = message.nested_type.add(name=f"{field.title().replace('_', '')}Entry")
                entry.options.map_entry = True
                _add(entry, "key", 1, "string")
                _add(entry, "value", 2, kind)
                kind = f"{name}.{entry.name}"
            _add(message, field, number, kind, _REPEATED if label else _OPTIONAL)
    pool = descriptor_pool.DescriptorPool()  # its own: the real definitions may be loaded too
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in messages
    }


def _add(message, name, number, kind, label=_OPTIONAL):
    field = message.field.add(name=name, number=number, label=label)
    field.type = _TYPES.get(kind, _MESSAGE)
    if field.type == _MESSAGE:
        field.type_name = f".{_PACKAGE}.{kind}"
