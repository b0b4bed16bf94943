"""Each class that makes weights declares how a mesh of devices divides them."""

import ast

import keras
import pytest
from fork_server import ROOT

from keras_attn.distribution.model_parallel import divide, weight_axes
from keras_attn.layers import FeedForward
from keras_attn.models.assembly import declare_axes, divide_outputs

MAKES = {"add_weight", "_add_projection", "halting_unit"}
# Layers of Keras that a class makes as its parts, with weights.
PARTS = {"Dense", "SeparableConv1D"}
# Its rules are made with its weights, whose names are those of the model's memory.
AT_RUN_TIME = {"StatefulSegments", "LowRankKernels", "QuantizedKernels"}


def makers():
    """The names of classes and base classes, and whether weights and rules are made in each."""
    for path in sorted((ROOT / "keras_attn").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if {"compat", "convert"} & set(path.parts) or not any(x in text for x in MAKES | PARTS):
            continue
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef):
                calls = [n.func for n in ast.walk(node) if isinstance(n, ast.Call)]
                names = {getattr(f, "attr", getattr(f, "id", None)) for f in calls}
                declares = any(
                    isinstance(n, ast.Assign) and n.targets[0].id == "weight_axes"
                    for n in node.body
                    if isinstance(getattr(n, "targets", [None])[0], ast.Name)
                )
                divides = "divide_outputs" in names
                yield node.name, bool(names & MAKES or names & PARTS and not divides), declares


def test_each_class_that_makes_weights_declares_their_axes():
    missing = {name for name, makes, declares in makers() if makes and not declares}
    assert missing == AT_RUN_TIME, "these classes make weights without `weight_axes`"


@pytest.mark.parametrize(
    "name, expected",
    [("kernel", (None, "model")), ("bias", ("model",)), ("other", None)],
)
def test_a_weight_has_the_rule_of_the_innermost_layer_that_has_rules(name, expected):
    outer, inner = FeedForward(3), keras.layers.Dense(3)
    scopes = [("block", None), ("feed_forward_2", outer), ("intermediate", inner)]
    assert weight_axes(scopes, name) == expected
    declare_axes(inner, kernel=("model",))
    assert weight_axes(scopes, "kernel") == ("model",)
    assert weight_axes(scopes, "bias") is None


@pytest.mark.parametrize("rule", [("models",), (None, "rows"), "model"])
def test_a_rule_names_axes_of_the_mesh(rule):
    sizes = {"data": 2, "model": 4}
    assert divide((3, 8), (None, "model"), sizes) == ([None, "model"], [])
    with pytest.raises(ValueError, match="`weight_axes` must name .* data, model, or None. Rec"):
        divide((8,) * len(rule), rule, sizes)


def test_only_dense_heads_are_divided():
    assert divide_outputs(keras.layers.Dense(2)).weight_axes["bias"] == ("model",)
    assert not hasattr(divide_outputs(keras.layers.Dropout(0.1)), "weight_axes")
