"""The operations that a graph repeats at every step of decoding."""


def count_loop_operations(graph):
    """Return the number of operations of the longest loop body in a `GraphDef`.

    Those of the functions that the body calls count too, such as both sides of a branch. Constants
    do not: they are there before the loop begins.
    """
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
