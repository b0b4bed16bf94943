"""Join the tensors of several requests along their first axis, and split the answers."""

import numpy as np

from .errors import Code, ServingError, invalid_argument

_MAX_PADDED_RANK = 6


def pad(feeds, shapes):
    """Pad tensors with their own first element.

    Args:
        feeds: dictionary from tensor name to array.
        shapes: dictionary from tensor name to the wanted shape, whose first entry is not used.

    Raises:
        ServingError: if a tensor has no first element, or not the rank of the others.
    """
    padded = {}
    for name, array in feeds.items():
        if array.ndim != len(shapes[name]) or array.ndim > _MAX_PADDED_RANK:
            raise invalid_argument("Only tensors with rank from 1 to 6 can be padded.")
        shape = (len(array), *shapes[name][1:])
        if shape != array.shape and not array.size:
            raise invalid_argument("Got empty tensor in batch of non-empty tensors.")
        padded[name] = np.full(shape, array.flat[0], array.dtype) if array.size else array
        padded[name][tuple(map(slice, array.shape))] = array
    return padded


def greatest_shapes(requests):
    """Return, by tensor name, the greatest size of every axis among requests (dictionaries)."""
    shapes = {name: list(array.shape) for name, array in requests[0].items()}
    for feeds in requests[1:]:
        for name, array in feeds.items():
            shapes[name] = [max(sizes) for sizes in zip(shapes[name], array.shape)]
    return shapes


def join(requests, size):
    """Concatenate the tensors of requests, and fill them up to `size` rows.

    The filling is the first row of the last request, which is a valid row.

    Args:
        requests: list of dictionaries from tensor name to array.
        size: int. Rows of the result.

    Raises:
        ServingError: if tensors of one name differ in more than their first axis.
    """
    joined = {}
    for name, first in requests[0].items():
        arrays = [feeds[name] for feeds in requests]
        if any(array.shape[1:] != first.shape[1:] for array in arrays):
            raise ServingError(
                Code.FAILED_PRECONDITION,
                f"Tensors with name '{name}' from different tasks have different shapes and "
                "padding is turned off. Set pad_variable_length_inputs to true, or ensure that "
                "all tensors with the same name have equal dimensions starting with the first "
                "dim.",
            )
        missing = size - sum(map(len, arrays))
        joined[name] = np.concatenate([*arrays, *[arrays[-1][:1]] * missing])
    return joined


def split(outputs, sizes, total):
    """Split outputs into those of each request.

    Args:
        outputs: list of arrays.
        sizes: list of ints, the rows of each request.
        total: int. The rows that were run.

    Returns:
        One list of arrays per request; None if an output's first axis is not the rows'.
    """
    if any(np.ndim(output) == 0 or len(output) != total for output in outputs):
        return None
    ends = np.cumsum(sizes)
    return [
        [output[end - size : end] for output in outputs] for size, end in zip(sizes, ends.tolist())
    ]
