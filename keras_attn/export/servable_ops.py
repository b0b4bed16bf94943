"""Which operations a stock TensorFlow Serving runs."""

import os

from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import op_def_registry

# Linked into the server since its version 2.2; later TF Text ops came with later servers.
TEXT_OPS = frozenset({"SentencepieceOp", "SentencepieceTokenizeOp", "SentencepieceDetokenizeOp"})
# Core ops whose kernels the server lacks, leaves to a compiler that is off, or never had.
_FORBIDDEN_PREFIXES = ("Xla", "_Xla", "PyFunc", "EagerPyFunc", "PyFuncStateless", "Mkl", "_Mkl")


def unservable_ops(path):
    """Operations in a SavedModel that a stock TensorFlow Serving does not run.

    Args:
        path: directory of the SavedModel, with `saved_model.pb` in it.

    Returns:
        A sorted list of names, empty for a model that can be served. TensorFlow's own ops pass,
        but for those of XLA and Python; of TensorFlow Text those of SentencePiece pass.

    Raises:
        ValueError: if there is no SavedModel.

    Example:
        >>> from keras_attn.export import unservable_ops
        >>> unservable_ops("nowhere")
        Traceback (most recent call last):
        ValueError: There is no saved_model.pb. Received: path='nowhere'.

    Reference: the server's SUPPORTED_TENSORFLOW_OPS in
        https://github.com/tensorflow/serving/blob/master/tensorflow_serving/model_servers/BUILD
    """
    file = os.path.join(path, "saved_model.pb")
    if not os.path.isfile(file):
        raise ValueError(f"There is no saved_model.pb. Received: path={os.fspath(path)!r}.")
    model = saved_model_pb2.SavedModel()
    with open(file, "rb") as content:
        model.ParseFromString(content.read())
    return sorted(name for name in _ops(model) if not _is_servable(name))


def _ops(model):
    names = set()
    for meta_graph in model.meta_graphs:
        graph = meta_graph.graph_def
        functions = {function.signature.name for function in graph.library.function}
        for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
            names.update(node.op for node in nodes)
            if any("_XlaMustCompile" in n.attr and n.attr["_XlaMustCompile"].b for n in nodes):
                names.add("_XlaMustCompile")
        names -= functions
    return names


def _is_servable(name):
    if name in TEXT_OPS:
        return True
    if name.startswith(_FORBIDDEN_PREFIXES):
        return False
    return op_def_registry.get(name) is not None and not _is_text_op(name)


def _is_text_op(name):
    import tensorflow as tf

    # Ops of an extension library are registered, but not among TensorFlow's own.
    return not hasattr(tf.raw_ops, name) and not name.startswith("_")
