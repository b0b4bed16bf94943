"""Conversion of a TensorFlow graph to ONNX by tf2onnx.

Private: `tf2onnx.tf_loader`, `tf2onnx.tfonnx` and the handlers of `tf2onnx.onnx_opset`; public is
only `tf2onnx.convert`. Holds for tf2onnx 1.17, which keras_attn requires.
Upstream: https://github.com/onnx/tensorflow-onnx/blob/main/tf2onnx/convert.py
Remove `convert_graph` when `tf2onnx.convert.from_function` can leave its optimisations out: one of
them changes the results of Transformer-XL, and they take four fifths of the time. Remove the
handlers when tf2onnx converts floor division of negative integers, padded booleans, new axes and
choices between NaN and a number.
"""

import contextlib
import importlib
import logging
import operator

_CONVERTERS = {
    "FloorDiv": ("math", "FloorDiv.version_6"),
    "FloorMod": ("math", "FloorMod.version_7"),
    "Pad": ("nn", "Pad.version_11"),
    "SelectV2": ("controlflow", "Select.version_9"),
    "StridedSlice": ("tensor", "StridedSlice.version_13"),
}


def convert_graph(concrete_function, inputs, outputs, *, opset, handlers):
    """Convert a concrete function without optimising it; ONNX Runtime optimises what it loads.

    `inputs` and `outputs` are dicts from tensor names to names in the file, `handlers` tf2onnx's
    `custom_op_handlers`. Return the `onnx.ModelProto` and the errors that tf2onnx logged, one for
    each operation that it cannot convert.
    """
    import tensorflow as tf
    import tf2onnx.convert

    # An eager table, as of a tokenizer, leaves None there, about which freezing would warn.
    concrete_function.graph.clear_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS)
    frozen = tf2onnx.tf_loader.from_function(concrete_function, [*inputs], [*outputs])
    with _captured_errors() as messages, tf.Graph().as_default() as graph:
        tf.import_graph_def(frozen, name="")
        converted = tf2onnx.tfonnx.process_tf_graph(
            graph,
            continue_on_error=True,
            opset=opset,
            custom_op_handlers=handlers,
            input_names=[*inputs],
            output_names=[*outputs],
            tensors_to_rename={**inputs, **outputs},
        )
        return converted.make_model("keras_attn"), messages


def convert_node(graph, node):
    """Convert a node of a type in `_CONVERTERS` as tf2onnx does."""
    module, method = _CONVERTERS[node.type]
    convert = operator.attrgetter(method)(importlib.import_module(f"tf2onnx.onnx_opset.{module}"))
    convert(graph, node)


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
