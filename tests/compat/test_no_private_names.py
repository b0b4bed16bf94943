"""No private name of another library is used outside `keras_attn/compat`."""

import ast
import importlib
import pathlib
import pkgutil
import re

import keras
from each import check_each

ROOT = pathlib.Path(__file__).parents[2]
OWN = ("keras_attn", "recipes", "serving")
PRIVATE_MODULES = ("keras.src", "tensorflow.python", "jax._src", "keras_hub.src")
# Documented names that begin with an underscore, and of `collections.namedtuple` its methods.
PUBLIC = {"_exit", "_replace", "_asdict", "_fields", "_make"}
# Methods that the documentation of the base class asks a subclass to define.
DOCUMENTED_OVERRIDES = {"_create_resource", "_initialize", "_abc_impl"}  # the last: Python's
# Private names of these classes are theirs even if our own code has the same name elsewhere.
FOREIGN = (keras.layers.Layer, keras.Model, keras.Variable, keras.optimizers.Adam)
# Texts tell which files may use such a name; only those are parsed.
WORD = re.compile(r"\b_[A-Za-z]\w*")
MODULE = re.compile("|".join(map(re.escape, PRIVATE_MODULES)))
DEFINITION = re.compile(r"(?m)\b(?:def|class) (_\w+)|\b(?:self|cls)\.(_\w+)(?: =|, )|^ *(_\w+) =")


def private_uses(sources, foreign=frozenset()):
    """Find private names of other libraries.

    Args:
        sources: dict from a path to the text of a Python file, of all files that are searched.
        foreign: set of names that are private to another library's objects in any case.

    Returns:
        List of strings "path:line: name".
    """
    texts = "\n".join(sources.values())
    own, used = {name for names in DEFINITION.findall(texts) for name in names} | PUBLIC, []
    for path, text in sources.items():
        words = set(WORD.findall(text))
        is_parsed = MODULE.search(text) or not words <= own - foreign
        for node in ast.walk(ast.parse(text)) if is_parsed else ():
            own |= _defined(node)
            used += [(path, node.lineno, name, None) for name in _private_modules(node)]
            name, is_of_self = _private_attribute(node)
            used += [(path, node.lineno, name, is_of_self)] if name else []
    return [
        f"{path}:{line}: {name}"
        for path, line, name, is_of_self in used
        if is_of_self is None or name not in own or (name in foreign and not is_of_self)
    ]


def _defined(node):
    """Return the names that a node defines: a function, class, variable or attribute of self."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return {node.id}
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return {node.attr} if _is_self(node.value) else set()
    return set()


def _private_modules(node):
    """Return the private modules and names that a node imports or names in a string."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        module = node.module or ""
        names = [module]
        if module.split(".")[0] not in OWN:
            names = [f"{module}.{alias.name}" for alias in node.names]
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        names = [node.value] if node.value.startswith(PRIVATE_MODULES) else []
    else:
        names = []
    return [name for name in names if name.startswith(PRIVATE_MODULES) or _is_private_path(name)]


def _is_private_path(name):
    parts = name.split(".")
    return parts[0] not in OWN and any(map(_is_private, parts))


def _private_attribute(node):
    """Return the private name that a node reads or writes on an object, and if that is `self`."""
    if isinstance(node, ast.Attribute) and _is_private(node.attr):
        return node.attr, _is_self(node.value)
    if isinstance(node, ast.Call) and len(node.args) > 1 and isinstance(node.func, ast.Name):
        argument = node.args[1]
        is_name = isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        if node.func.id in ("getattr", "setattr", "hasattr", "delattr") and is_name:
            return (argument.value if _is_private(argument.value) else None), False
    return None, False


def _is_private(name):
    return name.startswith("_") and not name.startswith("__")


def _is_self(node):
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def private_overrides(classes, own=OWN):
    """Find private methods of other libraries that a class of ours overrides."""
    overrides = []
    for cls in classes:
        foreign = [base for base in cls.__mro__[1:] if base.__module__.split(".")[0] not in own]
        for name in vars(cls):
            if _is_private(name) and any(name in vars(base) for base in foreign):
                overrides.append(f"{cls.__module__}.{cls.__name__}.{name}")
    return overrides


def test_no_private_name_outside_compat():
    files = [path for top in OWN for path in (ROOT / top).rglob("*.py")]
    compat = ROOT / "keras_attn" / "compat"
    sources = {
        str(path.relative_to(ROOT)): path.read_text()
        for path in files
        if compat not in path.parents and not path.name.endswith("_pb2.py")  # generated
    }
    foreign = {name for cls in FOREIGN for name in dir(cls) if _is_private(name)}
    uses = private_uses(sources, foreign)
    assert not uses, "move to a shim in keras_attn/compat:\n" + "\n".join(uses)


def test_no_private_method_of_another_library_is_overridden():
    package = importlib.import_module("keras_attn")
    classes = set()
    for module in pkgutil.walk_packages(package.__path__, "keras_attn."):
        if "compat" in module.name or module.name.endswith(("__main__", ".torch", ".jax")):
            continue
        if ".torch." in module.name or ".jax." in module.name:
            continue
        names = vars(importlib.import_module(module.name)).values()
        classes |= {x for x in names if isinstance(x, type) and x.__module__ == module.name}
    overrides = [
        name
        for name in private_overrides(classes)
        if name.split(".")[-1] not in DOCUMENTED_OVERRIDES
    ]
    assert not overrides, "move to a shim in keras_attn/compat:\n" + "\n".join(sorted(overrides))


PLANTED = {
    "import keras.src.backend": "keras.src.backend",
    "from keras.src import ops": "keras.src.ops",
    "from tensorflow.python.ops import math_ops": "tensorflow.python.ops.math_ops",
    "import jax._src.core": "jax._src.core",
    "from keras_hub.src.layers import x": "keras_hub.src.layers.x",
    "from collections import _chain": "collections._chain",
    "import importlib\nimportlib.import_module('keras.src.ops')": "keras.src.ops",
    "y = x._keras_mask": "_keras_mask",
    "x._value = 1": "_value",
    "setattr(x, '_value', 1)": "_value",
    "y = getattr(f(x), '_layers', None)": "_layers",
    "class A:\n    def f(self):\n        return self._flatten_layers()": "_flatten_layers",
    "class A:\n    def f(self):\n        return super()._flatten_layers()": "_flatten_layers",
    "def _layers(): pass\ny = x._layers": "_layers",
}


def test_the_scan_finds_planted_private_names():
    def check(source):
        line = 1 + source.count("\n")
        assert private_uses({"a.py": source}, {"_layers"}) == [f"a.py:{line}: {PLANTED[source]}"]

    check_each(check, list(PLANTED))


def test_the_scan_leaves_our_own_and_public_names_alone():
    source = """
from __future__ import annotations
from keras_attn.text.batches.token_batches import _helper
from keras_attn._folder import name
import os
class A:
    def __init__(self):
        self._state = 1
    def _step(self):
        return self._state + B()._state
y = A()._step() + x.__class__.__name__ + os._exit + named._replace(a=1)
"""
    assert private_uses({"a.py": source}) == []


def test_the_scan_finds_planted_overrides():
    class Ours(keras.layers.Layer):
        def _flatten_layers(self):
            return []

        def _ours(self):
            return []

    assert [name.split(".")[-1] for name in private_overrides([Ours], own=("none",))] == [
        "_flatten_layers"
    ]


SHIMS = sorted(p for p in (ROOT / "keras_attn" / "compat").glob("*.py") if p.stem != "__init__")


def test_each_shim_says_what_it_is_for_and_when_it_can_go():
    tests = "".join(test.read_text() for test in (ROOT / "tests/compat").glob("test_*.py"))

    def check(path):
        docstring = ast.get_docstring(ast.parse(path.read_text()))
        for part in ("Private: ", r"Holds\sfor\s", r"Upstream:[^:]*\shttps://", "Remove "):
            assert re.search(part, docstring), f"the docstring has no {part!r}"
        assert path.stem in tests, "no test in tests/compat uses it"

    check_each(check, SHIMS)
