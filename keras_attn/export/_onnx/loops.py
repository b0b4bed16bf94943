"""Loops whose body reads weights in place of carrying them."""


def read_invariants(graph):
    """Let the bodies of loops read from outside what no iteration changes; edit a `GraphProto`.

    tf2onnx makes every tensor that a TensorFlow loop reads a state of the ONNX loop. ONNX Runtime
    prepares the weights of a product once, and quantises them, only where it sees that they are
    constants.
    """
    names = {}
    for node in graph.node:
        bodies = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
        if node.op_type == "Loop":
            names.update(_read_invariants(node, *bodies))
        for body in bodies:
            read_invariants(body)
    _rename(graph, names)


def _read_invariants(loop, body):
    """Edit a loop, and return its outputs that go, as a dict to the names of their values."""
    # Before the states: the number of iterations and the condition, in the outputs the condition.
    inner, after = [x.name for x in body.input[2:]], [x.name for x in body.output[1:]]
    same = [i for i, (a, b) in enumerate(zip(inner, after, strict=False)) if a == b]
    outer = {i: loop.input[2 + i] for i in same}
    replaced = {loop.output[i]: name for i, name in outer.items() if loop.output[i]}
    _rename(body, {inner[i]: name for i, name in outer.items()})
    for i in reversed(same):
        del loop.input[2 + i], body.input[2 + i], body.output[1 + i], loop.output[i]
    return replaced


def _rename(graph, names):
    """Replace names of tensors that nodes of a graph read, in their own graphs too."""
    if not names:
        return
    for node in graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = names.get(name, name)
        for attribute in node.attribute:
            _rename(attribute.g, names)
    for value in graph.output:
        value.name = names.get(value.name, value.name)
