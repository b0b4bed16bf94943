"""`tf.Example`s of classify and regress requests, from JSON and as a tensor."""

import numpy as np

from .errors import invalid_argument, require
from .json_inputs import decode_base64, format_error, is_object
from .json_text import NUMBER_TOO_BIG, encode, type_name


def read_examples(document, input_proto):
    """Put the `examples` and the `context` of a parsed JSON request into an `Input` proto.

    Checks, their order and their messages are those of `util/json_tensor.cc`.
    """
    target = input_proto.example_list
    if "context" in document:
        target = input_proto.example_list_with_context
        _read_example(document["context"], target.context)
    if "examples" not in document:
        message = "When method is classify, key 'examples' is expected and was not found"
        raise format_error(document, message)
    examples = document["examples"]
    if not isinstance(examples, list):
        raise format_error(document, "Expecting 'examples' value to be an list/array")
    if not examples:
        raise format_error(document, "'examples' value is an empty array")
    for example in examples:
        _read_example(example, target.examples.add())


def serialized_examples(input_proto):
    """Return the tensor of an `Input`: one serialized example per row, after the common context."""
    kind = input_proto.WhichOneof("kind")
    source = getattr(input_proto, kind or "example_list")
    require(source.examples, "Input is empty.")
    has_context = kind == "example_list_with_context"
    context = source.context.SerializeToString() if has_context else b""
    rows = (context + example.SerializeToString() for example in source.examples)
    return np.fromiter(rows, object)


def _read_example(value, example):
    is_dict = isinstance(value, dict)
    require(is_dict, f"Example must be JSON object but got JSON {type_name(value)}")
    for name, content in value.items():
        key = encode(name).decode("utf-8", "replace")
        feature = example.features.feature[key]
        for item in content if isinstance(content, list) else [content]:
            _add(item, key, feature)


def _add(item, name, feature):
    if item is None or isinstance(item, list) or is_object(item):
        kind = type_name(item)
        raise invalid_argument(f"Feature: {name} has element with unexpected JSON type: {kind}")
    if isinstance(item, (str, dict)):
        kind, value = "bytes_list", encode(item) if isinstance(item, str) else decode_base64(item)
    elif isinstance(item, float) or not -(2**63) <= item < 2**64:
        try:
            kind, value = "float_list", float(item)
        except OverflowError as error:
            raise invalid_argument(NUMBER_TOO_BIG) from error
    else:
        kind, value = "int64_list", int(item)
    present = feature.WhichOneof("kind") or kind
    if present != kind:
        expected = f"expecting type: {present.removesuffix('_list')}"
        raise invalid_argument(f"Unexpected element type in feature: {name} {expected}")
    if kind == "int64_list" and value >= 2**63:
        raise invalid_argument(f"Feature: {name} has uint64_t element. Only int64_t is supported.")
    getattr(feature, kind).value.append(value)
