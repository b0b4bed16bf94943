"""Conversion of a TensorFlow graph to ONNX by tf2onnx.

Private: `tf2onnx.tf_loader`, `tf2onnx.tfonnx` and the handlers of `tf2onnx.onnx_opset`; public is
only `tf2onnx.convert`. Holds for tf2onnx 1.17, which keras_attn requires.
Upstream: https://github.com/onnx/tensorflow-onnx/blob/main/tf2onnx/convert.py
Remove `convert_graph` when `tf2onnx.convert.from_function` can leave its optimisations out: one of
them changes the results of Transformer-XL, and they take four fifths of the time. Remove the
handlers when tf2onnx converts floor division of negative integers, padded booleans and new axes.
"""

import contextlib
import logging


def convert_graph(concrete_function, inputs, outputs, *, opset, handlers, renamed):
    """Convert a concrete function without optimising it; ONNX Runtime optimises what it loads.

    Args:
        concrete_function: `tf.types.experimental.ConcreteFunction`.
        inputs: list of tensor names. outputs: list of tensor names.
        opset: int. handlers: dict, the `custom_op_handlers` of tf2onnx.
        renamed: dict from tensor names to names in the file.

    Returns:
        The `onnx.ModelProto` and the list of errors that tf2onnx logged, one for each operation
        that it cannot convert.
    """
    import tensorflow as tf
    import tf2onnx.convert

    frozen = tf2onnx.tf_loader.from_function(concrete_function, inputs, outputs)
    with _captured_errors() as messages, tf.Graph().as_default() as graph:
        tf.import_graph_def(frozen, name="")
        converted = tf2onnx.tfonnx.process_tf_graph(
            graph,
            continue_on_error=True,
            opset=opset,
            custom_op_handlers=handlers,
            input_names=inputs,
            output_names=outputs,
            tensors_to_rename=renamed,
        )
        return converted.make_model("keras_attn"), messages


def floor_mod(graph, node):
    """Convert `FloorMod` as tf2onnx does."""
    from tf2onnx.onnx_opset.math import FloorMod

    FloorMod.version_7(graph, node)


def floor_div(graph, node):
    """Convert `FloorDiv` as tf2onnx does."""
    from tf2onnx.onnx_opset.math import FloorDiv

    FloorDiv.version_6(graph, node)


def pad(graph, node):
    """Convert `Pad` as tf2onnx does."""
    from tf2onnx.onnx_opset.nn import Pad

    Pad.version_11(graph, node)


def strided_slice(graph, node):
    """Convert `StridedSlice` as tf2onnx does."""
    from tf2onnx.onnx_opset.tensor import StridedSlice

    StridedSlice.version_13(graph, node)


@contextlib.contextmanager
def _captured_errors():
    """Collect in a list what tf2onnx would log, and print nothing."""
    messages = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: messages.append(record.getMessage())
    logger = logging.getLogger("tf2onnx")
    propagates, handlers = logger.propagate, logger.handlers
    logger.propagate, logger.handlers = False, [handler]
    try:
        yield messages
    finally:
        logger.propagate, logger.handlers = propagates, handlers
