"""Quantisation of an ONNX file's matrices to eight bits."""

import contextlib
import logging


def write_int8(proto, file):
    """Write a model with its weight matrices and embedding tables as 8-bit integers.

        q = round(w / s),   p = round(x / s') + z,   x W = s s' (p - z) Q

    A column of a matrix has its scale s, a table has one. The scale s' and the zero point z of x
    are those of each product's own input, so no examples are needed. A weight q has 7 bits: with 8,
    sums of two products overflow on processors without the instructions VNNI. The products of
    attention, norms and softmax stay float32.

    Args:
        proto: `onnx.ModelProto`.
        file: path.

    Reference: https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html
    """
    from onnxruntime.quantization import quantize_dynamic

    with _without_advice():
        quantize_dynamic(
            proto,
            file,
            op_types_to_quantize=["MatMul", "Gather"],
            per_channel=True,
            reduce_range=True,
            extra_options={"EnableSubgraph": True},  # the body of the decoding loop
        )


@contextlib.contextmanager
def _without_advice():
    """Hide a warning that the file should be optimised: ONNX Runtime does it when it loads one."""
    logger = logging.getLogger()

    def is_other(record):
        return "pre-processing before quantization" not in record.getMessage()

    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)
