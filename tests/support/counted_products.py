"""Count the multiply-adds of the products that TensorFlow computes eagerly, from their shapes."""

import contextlib
import math

from tensorflow.python.framework import op_callbacks


@contextlib.contextmanager
def counted():
    """Yield a list, to which each product computed inside adds its number of multiply-adds."""
    products = []

    def count(op_type, inputs, attributes, outputs, op_name=None, graph=None):
        attributes = dict(zip(attributes[::2], attributes[1::2], strict=True))
        if op_type in COUNTERS:
            shapes = [tuple(x.shape) for x in inputs]
            products.append(COUNTERS[op_type](shapes, tuple(outputs[0].shape), attributes))

    op_callbacks.add_op_callback(count)
    try:
        yield products
    finally:
        op_callbacks.remove_op_callback(count)


def _matmul(transpose):
    def count(shapes, output, attributes):
        axis = -2 if attributes[transpose] else -1
        return math.prod(output) * shapes[0][axis]

    return count


def _batched(shapes, output, attributes):
    depth = shapes[0][-2 if attributes["adj_x"] else -1]
    return math.prod(output) * depth if depth > 1 else 0  # a product with a one is a copy


def _einsum(shapes, output, attributes):
    equation = attributes["equation"]
    equation = equation.decode() if isinstance(equation, bytes) else equation
    sizes = {}
    for labels, shape in zip(equation.split("->")[0].split(","), shapes, strict=True):
        sizes.update(zip(labels, shape, strict=True))
    return math.prod(sizes.values()) if len(shapes) > 1 else 0


COUNTERS = {
    "MatMul": _matmul("transpose_a"),
    "BatchMatMulV2": _batched,
    "Einsum": _einsum,
}
