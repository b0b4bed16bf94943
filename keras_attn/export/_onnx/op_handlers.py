"""Conversions to ONNX that tf2onnx lacks or gets wrong: of operations, and of loops."""

import numpy as np

from keras_attn.compat.tf2onnx_graphs import convert_node


def handlers():
    """Return the dict that tf2onnx takes as `custom_op_handlers`."""
    return {
        "Erfc": (_erfc, []),
        "FloorDiv": (_floor_div, []),
        "FloorMod": (_floor_mod, []),
        "PadV2": (_pad, []),
        "SelectV2": (_select, []),
        "StridedSlice": (_strided_slice, []),
    }


def _take_out(graph, node):
    """Remove a node; return arguments of `make_node`: its output's type, and its whole place."""
    (output,) = node.output
    known = {"shapes": [graph.get_shape(output)], "dtypes": [graph.get_dtype(output)]}
    graph.remove_node(node.name)
    return known, {"name": node.name, "outputs": [output], **known}


def _erfc(graph, node, name, arguments):
    """Convert Erfc, which the exact GELU uses, to 1 - erf(x)."""
    (x,) = node.input
    known, place = _take_out(graph, node)
    erf = graph.make_node("Erf", [x], **known)
    one = graph.make_const(f"{name}/one", np.ones((), "float32"))
    graph.make_node("Sub", [one.output[0], erf.output[0]], **place)


def _floor_mod(graph, node, name, arguments):
    """Convert FloorMod; of negative integers tf2onnx gives a truncated division's remainder."""
    if _is_of_integers(graph, node):
        node.type = "Mod"  # has the sign of the divisor too
    else:
        convert_node(graph, node)


def _floor_div(graph, node, name, arguments):
    """Convert FloorDiv to (x - x mod y) / y; tf2onnx rounds integer quotients towards zero."""
    if not _is_of_integers(graph, node):
        convert_node(graph, node)
        return
    x, y = node.input
    known, place = _take_out(graph, node)
    rest = graph.make_node("Mod", [x, y], **known)
    whole = graph.make_node("Sub", [x, rest.output[0]], **known)
    graph.make_node("Div", [whole.output[0], y], **place)


def _is_of_integers(graph, node):
    from onnx import helper

    dtype = helper.tensor_dtype_to_np_dtype(graph.get_dtype(node.output[0]))
    return np.issubdtype(dtype, np.integer)


def _pad(graph, node, name, arguments):
    """Convert PadV2 of booleans by way of int32; tf2onnx casts the input but not the value."""
    from onnx import TensorProto

    if graph.get_dtype(node.output[0]) == TensorProto.BOOL:
        x, paddings, value = node.input
        known, place = _take_out(graph, node)
        x, value = (_cast(graph, tensor, TensorProto.INT32) for tensor in (x, value))
        as_integers = {**known, "dtypes": [TensorProto.INT32]}
        node = graph.make_node("PadV2", [x, paddings, value], **as_integers)
        graph.make_node("Cast", node.output, {"to": TensorProto.BOOL}, **place)
    node.type = "Pad"
    convert_node(graph, node)


def _cast(graph, x, dtype):
    shape = graph.get_shape(x)
    return graph.make_node("Cast", [x], {"to": dtype}, shapes=[shape], dtypes=[dtype]).output[0]


def _select(graph, node, name, arguments):
    """Convert SelectV2 to Where in a graph that looks for NaN; tf2onnx multiplies NaN by 0."""
    if any(each.type in ("IsNan", "IsNaN") for each in graph.get_nodes()):
        node.set_attr("handles_nan", True)
    convert_node(graph, node)


def _strided_slice(graph, node, name, arguments):
    """Convert x[..., None, :], which only adds an axis, to Unsqueeze; tf2onnx loses its shape."""
    axes = _new_axes(graph, node)
    if axes is None:
        convert_node(graph, node)
        return
    x = node.input[0]
    _, place = _take_out(graph, node)
    axes = graph.make_const(f"{name}/axes", np.array(axes, "int64"))
    graph.make_node("Unsqueeze", [x, axes.output[0]], **place)


def _new_axes(graph, node):
    """Return the new axes of the output if the slice only adds axes; None for any other slice."""
    masks = {
        key: node.get_attr_value(f"{key}_mask", 0)
        for key in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    shape, strides = graph.get_shape(node.input[0]), node.inputs[3]
    if not masks["new_axis"] or masks["shrink_axis"] or shape is None or not strides.is_const():
        return None
    strides = strides.get_tensor_value()
    kinds = []
    for bit, stride in enumerate(strides):
        if masks["ellipsis"] >> bit & 1:
            kinds.append("ellipsis")
        elif masks["new_axis"] >> bit & 1:
            kinds.append("new")
        elif masks["begin"] >> bit & masks["end"] >> bit & 1 and stride == 1:
            kinds.append("whole")
        else:
            return None
    if "ellipsis" in kinds:
        at = kinds.index("ellipsis")
        kinds[at : at + 1] = ["whole"] * (len(shape) - kinds.count("whole"))
    return [axis for axis, kind in enumerate(kinds) if kind == "new"]


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
