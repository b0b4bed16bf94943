"""Loops whose body reads weights in place of carrying them."""


def read_invariants(graph):
    """Let the bodies of loops read from outside what no iteration changes; edit a `GraphProto`.

    tf2onnx makes every tensor that a TensorFlow loop reads a state of the ONNX loop. ONNX Runtime
    prepares the weights of a product once, and quantises them, only where it sees that they are
    constants.
    """
    for index in reversed(range(len(graph.node))):
        node = graph.node[index]
        for body in _subgraphs(node):
            read_invariants(body)
            if node.op_type == "Loop":
                for identity in _hoist(node, body):
                    graph.node.insert(index + 1, identity)


def _hoist(loop, body):
    """Take invariants out of a loop; return nodes that give its outputs the same values."""
    from onnx.helper import make_node

    # Before the states: the number of the iteration and the condition, in outputs the condition.
    inner, after = [x.name for x in body.input[2:]], [x.name for x in body.output[1:]]
    names = set(_names(body))
    states = [i for i, name in enumerate(inner) if after[i] == name and after.count(name) == 1]
    states = [i for i in states if loop.input[2 + i] not in names]
    outer = {i: loop.input[2 + i] for i in states}
    identities = [
        make_node("Identity", [name], [loop.output[i]])
        for i, name in outer.items()
        if loop.output[i]
    ]
    _rename(body, {inner[i]: name for i, name in outer.items()})
    for i in reversed(states):
        del loop.input[2 + i], body.input[2 + i], body.output[1 + i], loop.output[i]
    return identities


def _names(graph):
    """Yield the names of the tensors that a graph makes."""
    for value in (*graph.input, *graph.initializer):
        yield value.name
    for node in graph.node:
        yield from node.output


def _rename(graph, names):
    """Replace names of tensors that nodes of a graph read, in their own graphs too."""
    for node in graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = names.get(name, name)
        for inner in _subgraphs(node):
            _rename(inner, names)


def _subgraphs(node):
    return [attribute.g for attribute in node.attribute if attribute.HasField("g")]
