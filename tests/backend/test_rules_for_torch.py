"""Rules that code obeys for torch, tested where torch is not installed.

That no part of a layer has the name of an attribute of its class is tested in test_sublayers.py.
"""

import ast

import keras
import pytest
from fork_server import ROOT

from keras_attn.ops.random import RepeatedSeed

# What layers compute with. The other packages prepare arrays, or need TensorFlow.
PACKAGES = "attention backend depth feed_forward layers losses memory models norms ops patterns"
PACKAGES = [*PACKAGES.split(), "positions", "residuals", "scores", "generation", "metrics"]
CODE = [path for name in PACKAGES for path in (ROOT / "keras_attn" / name).rglob("*.py")]


def mixed_operations(source):
    """Return the expressions that add, subtract or multiply a tensor and an array of NumPy.

    An expression is an array if it is made of calls of `np`, and a tensor if it is made of calls of
    `ops`; so is a name or an attribute to which such an expression is assigned.
    """
    tree = ast.parse(source)
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    kinds = {}
    for node in assigned:
        if len(node.targets) == 1 and (kind := _kind(node.value, kinds)):
            kinds.setdefault(ast.unparse(node.targets[0]), set()).add(kind)
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Add, ast.Sub))
        if {_kind(node.left, kinds), _kind(node.right, kinds)} == {"np", "ops"}
    ]


def _kind(node, kinds):
    """Return "np" or "ops" for what an expression is made of; None if that is not known."""
    if isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) in kinds:
        known = kinds[ast.unparse(node)]
        return None if len(known) > 1 else next(iter(known))
    if isinstance(node, ast.Call):
        function = ast.unparse(node.func).split(".")[0]
        return function if function in ("np", "ops") else None
    if isinstance(node, ast.Subscript):
        return _kind(node.value, kinds)
    if isinstance(node, ast.UnaryOp):
        return _kind(node.operand, kinds)
    if isinstance(node, ast.BinOp):
        return _kind(node.left, kinds) or _kind(node.right, kinds)
    return None


@pytest.mark.parametrize(
    "source, expected",
    [
        ("products = ops.matmul(a, b)\ny = products * np.tri(3)", ["products * np.tri(3)"]),
        (
            "self.a = np.ones(3)\ny = -self.a[:, None] + 2 * ops.exp(x)",
            ["-self.a[:, None] + 2 * ops.exp(x)"],
        ),
        ("y = ops.multiply(ops.exp(x), np.tri(3))\nz = np.ones(3) - 2 * np.ones(3)", []),
    ],
)
def test_mixed_operations(source, expected):
    assert mixed_operations(source) == expected


def test_no_operator_mixes_a_tensor_and_an_array():
    """Torch refuses some of them, such as the product of a weight and an array."""
    sources = {path: path.read_text(encoding="utf-8") for path in CODE}
    assert len(sources) > 100
    mixed = {str(path): mixed_operations(sources[path]) for path in CODE if "np." in sources[path]}
    assert {path: operations for path, operations in mixed.items() if operations} == {}


def subclasses(cls):
    return [each for child in cls.__subclasses__() for each in (child, *subclasses(child))]


def test_every_own_seed_generator_has_a_number():
    """Torch's dropout takes its global generator where there is none: recomputed masks differ."""
    classes = subclasses(keras.random.SeedGenerator)
    own = [cls for cls in classes if cls.__module__.startswith("keras_attn")]
    assert RepeatedSeed in own
    assert [cls.__name__ for cls in own if not isinstance(cls._initial_seed, int)] == []
    assert isinstance(RepeatedSeed([3, 5])._initial_seed, int)
