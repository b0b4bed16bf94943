"""What a SavedModel's files say, read without loading the model."""

import collections
import os

from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2


def read_saved_model(path):
    """The graph and signatures of the SavedModel in the directory `path`, a `MetaGraphDef`.

    Raises:
        ValueError: if there is no SavedModel, or its file is broken.
    """
    file = os.path.join(path, "saved_model.pb")
    if not os.path.isfile(file):
        raise ValueError(f"There is no saved_model.pb. Received: path={os.fspath(path)!r}.")
    saved = None
    with open(file, "rb") as content:
        try:
            saved = saved_model_pb2.SavedModel.FromString(content.read())
        except DecodeError:
            pass
    if saved is None or not saved.meta_graphs:
        raise ValueError(f"The file is damaged, or no SavedModel's. Received: {file}.")
    return saved.meta_graphs[0]


def count_ops(meta_graph):
    """How often each operation stands in a graph and its functions: a `Counter` by name.

    What must be compiled by XLA counts as "_XlaMustCompile".
    """
    counts = collections.Counter()
    graph = meta_graph.graph_def
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        counts.update(node.op for node in nodes)
        counts.update("_XlaMustCompile" for node in nodes if _must_compile(node))
    for function in graph.library.function:
        counts.pop(function.signature.name, None)  # a call of it
    return counts


def _must_compile(node):
    return "_XlaMustCompile" in node.attr and node.attr["_XlaMustCompile"].b


def size_of_files(path):
    """The bytes of all files in a directory and those below it."""
    folders = os.walk(path)
    return sum(
        os.path.getsize(os.path.join(top, name)) for top, _, names in folders for name in names
    )
