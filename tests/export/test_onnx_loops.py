"""Invariants of ONNX loops are read from outside, and every output stays."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

from keras_attn.export._onnx.op_handlers import read_invariants

D, STEPS = 3, 5


def value(name, shape=(D,), dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def loop(name, states, results, body_nodes, outputs, inner):
    """A node that runs `body_nodes` STEPS times; `outputs` are the body's for each state."""
    counts = [value(f"{name}_i", (), TensorProto.INT64), value(f"{name}_c", (), TensorProto.BOOL)]
    body = helper.make_graph(
        [helper.make_node("Identity", [f"{name}_c"], [f"{name}_on"]), *body_nodes],
        f"{name}_body",
        [*counts, *map(value, inner)],
        [value(f"{name}_on", (), TensorProto.BOOL), *map(value, outputs)],
    )
    return helper.make_node("Loop", ["steps", "true", *states], results, body=body)


def model():
    """Two loops, the second of which gets an invariant of the first; one that swaps two states."""
    total = helper.make_node("Add", ["a_x", "a_w"], ["a_total"])
    product = helper.make_node("Mul", ["n_x", "n_w"], ["n_product"])
    inner = loop(
        "n", ["b_x", "b_w"], ["n_out", "n_rest"], [product], ["n_product", "n_w"], ["n_x", "n_w"]
    )
    nodes = [
        loop("a", ["x", "w"], ["a_out", "w_after"], [total], ["a_total", "a_w"], ["a_x", "a_w"]),
        loop(
            "b",
            ["a_out", "w_after"],
            ["b_out", "w_last"],
            [inner],
            ["n_out", "b_w"],
            ["b_x", "b_w"],
        ),
        loop("s", ["x", "w"], ["s_x", "s_w"], [], ["s_right", "s_left"], ["s_left", "s_right"]),
        helper.make_node("Add", ["b_out", "w_after"], ["y"]),
    ]
    constants = [
        helper.make_tensor("w", TensorProto.FLOAT, [D], [0.5, 1.0, 1.5]),
        helper.make_tensor("steps", TensorProto.INT64, [], [STEPS]),
        helper.make_tensor("true", TensorProto.BOOL, [], [True]),
    ]
    outputs = [value(name) for name in ("y", "w_last", "w_after", "s_x", "s_w")]
    graph = helper.make_graph(nodes, "loops", [value("x")], outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_loops_in_turn_nested_and_swapping_give_the_same():
    proto, x = model(), np.array([2.0, 3.0, 5.0], "float32")

    def run():
        session = onnxruntime.InferenceSession(proto.SerializeToString())
        return session.run(None, {"x": x})

    before = run()
    weights = np.array([0.5, 1.0, 1.5], "float32")
    product = x + STEPS * weights
    for _ in range(STEPS * STEPS):
        product = product * weights
    np.testing.assert_allclose(before[0], product + weights, rtol=1e-5)
    read_invariants(proto.graph)
    for output, expected in zip(run(), before, strict=True):
        np.testing.assert_array_equal(output, expected)
    first, second, swapping = (node for node in proto.graph.node if node.op_type == "Loop")
    assert list(first.input) == ["steps", "true", "x"] and list(first.output) == ["a_out"]
    (inner,) = (n for n in second.attribute[0].g.node if n.op_type == "Loop")
    assert len(second.input) == len(inner.input) == 3 and len(swapping.input) == 4
