"""Predict requests in JSON: row form (`instances`) and column form (`inputs`).

Checks, their order and their texts are those of TensorFlow Serving's `util/json_tensor.cc`.
"""

import math

from .errors import ServingError, invalid_argument
from .json_text import quote, readable
from .json_values import build, is_object, shape_and_leaves


def read_signature_name(document):
    """The request's `signature_name`, or "" for the default one.

    Raises:
        ServingError: if it is not a string.
    """
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise _format_error(
            document, "not formatted correctly. 'signature_name' key must be a string value."
        )
    return readable(name)


def read_inputs(document, dtypes):
    """The tensors of a predict request.

    Args:
        document: dictionary, the parsed request.
        dtypes: dictionary from input name to `tf.DType`, not empty.

    Returns:
        Pair of a dictionary from name to array, and True if the request is in row form.

    Raises:
        ServingError: if the values do not fit the names and dtypes.
    """
    if "instances" in document and "inputs" in document:
        raise _format_error(
            document,
            "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist ",
        )
    if "instances" in document:
        instances = document["instances"]
        if not isinstance(instances, list):
            raise _format_error(document, "Expecting 'instances' to be an list/array")
        if not instances:
            raise _format_error(document, "No values in 'instances' array")
        return _read_rows(instances, dtypes), True
    if "inputs" in document:
        return _read_columns(document["inputs"], dtypes), False
    raise invalid_argument("Missing 'inputs' or 'instances' key")


def _read_rows(instances, dtypes):
    if not isinstance(instances[0], dict) and len(dtypes) > 1:
        raise invalid_argument(
            "instances is a plain list, but expecting list of objects as multiple input tensors "
            "required as per tensorinfo_map"
        )
    named = is_object(instances[0])
    only = next(iter(dtypes))
    shapes, columns = {}, {}
    for index, instance in enumerate(instances):
        if named != is_object(instance):
            raise invalid_argument(
                f"Expecting object but got list at item {index} of input list"
                if named
                else f"Expecting value/list but got object at item {index} of input list"
            )
        for name, item in (instance if named else {only: instance}).items():
            try:
                _add_item(name, item, dtypes, shapes, columns)
            except ServingError as error:
                key = f" key: {name}" if named else ""
                raise invalid_argument(
                    f"Failed to process element: {index}{key} of 'instances' list. Error: {error}"
                ) from error
        if named and instance.keys() != dtypes.keys():
            raise invalid_argument(
                f"Failed to process element: {index} of 'instances' list. JSON object: "
                f"{quote(instance)} keys must be equal to: {','.join(sorted(dtypes))}"
            )
    return {
        name: build(name, leaves, [len(instances), *shapes[name]], dtypes[name])
        for name, leaves in columns.items()
    }


def _add_item(name, item, dtypes, shapes, columns):
    if name not in dtypes:
        raise invalid_argument(f"JSON object: does not have named input: {name}")
    shape, leaves = shape_and_leaves(name, item, dtypes[name])
    expected = shapes.setdefault(name, shape)
    if math.prod(expected) != len(leaves):
        raise invalid_argument(
            f"Expecting tensor size: {math.prod(expected)} but got: {len(leaves)}"
        )
    if expected != shape:
        raise invalid_argument(f"Expecting shape {_show(expected)} but got: {_show(shape)}")
    columns.setdefault(name, []).extend(leaves)


def _read_columns(inputs, dtypes):
    if not is_object(inputs):
        if len(dtypes) > 1:
            raise invalid_argument(
                "inputs is a plain value/list, but expecting an object as multiple input tensors "
                "required as per tensorinfo_map"
            )
        inputs = {next(iter(dtypes)): inputs}
    arrays = {}
    for name, dtype in dtypes.items():
        if name not in inputs:
            raise invalid_argument(f"Missing named input: {name} in 'inputs' object.")
        shape, leaves = shape_and_leaves(name, inputs[name], dtype)
        arrays[name] = build(name, leaves, shape, dtype)
    return arrays


def _show(shape):
    return f"[{','.join(map(str, shape))}]"


def _format_error(document, message):
    return invalid_argument(f"JSON Value: {quote(document)} {message}")
