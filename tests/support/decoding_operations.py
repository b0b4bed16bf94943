"""The operations that an exported graph repeats at every step of decoding."""

from pathlib import Path

from tensorflow.core.protobuf.saved_model_pb2 import SavedModel


def count_loop_operations(directory):
    """Return the number of operations of the longest loop body in a SavedModel.

    Those of the functions that the body calls count too, such as both sides of a branch. Constants
    do not: they are there before the loop begins.
    """
    saved = SavedModel.FromString((Path(directory) / "saved_model.pb").read_bytes())
    (graph,) = (meta.graph_def for meta in saved.meta_graphs)
    functions = {function.signature.name: function for function in graph.library.function}

    def called(node):
        names = [value.func.name for value in node.attr.values()]
        return [functions[name] for name in names if name in functions]

    def count(function):
        nodes = [node for node in function.node_def if node.op != "Const"]
        return len(nodes) + sum(count(inner) for node in nodes for inner in called(node))

    loops = [
        functions[node.attr["body"].func.name]
        for function in functions.values()
        for node in function.node_def
        if node.op in ("While", "StatelessWhile")
    ]
    return max(map(count, loops))
