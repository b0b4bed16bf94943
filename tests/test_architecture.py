"""The rules of the house, read from the source: imports go down only, every idea names its paper,
and the core runs without TensorFlow."""

import ast
import builtins
import doctest
import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from other_backend import INSTALLED, start_on

HOUSE = Path(__file__).resolve().parents[1]
PACKAGE = HOUSE / "keras_attn"
SOURCES = sorted(PACKAGE.rglob("*.py"))
ROOFS = ("keras_attn", "recipes", "serving", "tests")
CODE = sorted(path for roof in ROOFS for path in (HOUSE / roof).rglob("*.py"))
LONGEST = 400

FLOORS = [
    {"axis"},
    {"ops"},
    {"scores", "patterns", "positions", "residuals"},
    {"layers"},
    {"memory"},
    {"depth"},
    {"models"},
    {"training"},
    {"generation"},
    {"text"},
    {"export"},
    {"convert"},
    {"viz"},
    {"testing"},
]
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
CORE = {room for room, floor in FLOOR.items() if floor <= FLOOR["models"]}
TENSORFLOW_ROOMS = {"text", "export"}
CATALOGUE = ["layers", "scores", "patterns", "positions", "residuals", "depth", "memory", "models"]
# What resolves a name is not an idea from a paper.
RESOLVERS = {"get", "create"}


def room_of(path):
    """The room (folder or module) of keras_attn that a file stands in; the lobby has none."""
    first = path.relative_to(PACKAGE).parts[0]
    return None if first == "__init__.py" else first.removesuffix(".py")


def imports(tree, path=None, *, inside_functions=True):
    """(line, dotted name) of every import, relative ones made absolute."""
    package = list(path.relative_to(HOUSE).parent.parts) if path else []
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
        if inside_functions or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            pending.extend(ast.iter_child_nodes(node))


def going_up(room, tree, path=None):
    """The imports in `tree`, a file of `room`, that do not lead to a lower floor."""
    for line, name in imports(tree, path):
        parts = name.split(".")
        if parts[0] != "keras_attn":
            continue
        target = parts[1] if len(parts) > 1 and parts[1] in FLOOR else None
        if target == room:
            continue
        if target is None or FLOOR[target] >= FLOOR[room]:
            yield f"line {line}: {name}"


def parse(path):
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def name_of(path):
    return path.relative_to(HOUSE).as_posix()


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_imports_go_down_only(path):
    room = room_of(path)
    if room is None:
        return  # the lobby is the roof: it may import every room
    assert room in FLOOR, f"{room} has no floor: add it to FLOORS"
    assert list(going_up(room, parse(path), path)) == []


@pytest.mark.parametrize(
    "room, code, allowed",
    [
        ("layers", "from keras_attn.ops import attend", True),
        ("layers", "from keras_attn import scores", True),
        ("layers", "from keras_attn.layers.feed_forward import FeedForward", True),
        ("layers", "def f():\n    from keras_attn.models import bert", False),
        ("layers", "from keras_attn import models", False),
        ("layers", "import keras_attn", False),
        ("scores", "import keras_attn.patterns", False),
    ],
)
def test_the_import_rule_sees_every_form_of_import(room, code, allowed):
    assert (list(going_up(room, ast.parse(code))) == []) is allowed


def test_the_import_rule_sees_relative_imports():
    path = PACKAGE / "layers" / "feed_forward.py"
    up = list(going_up("layers", ast.parse("from ..models import bert\nfrom . import x"), path))
    assert up == ["line 1: keras_attn.models.bert"]


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_tensorflow_and_optional_packages_stay_in_their_rooms(path):
    room, tree = room_of(path), parse(path)
    if room in TENSORFLOW_ROOMS:
        return
    # Only ops, behind a dispatch on the backend, may know of TensorFlow in the core.
    inside_functions = room in CORE - {"ops"}
    found = [
        f"line {line}: {name}"
        for line, name in imports(tree, path, inside_functions=inside_functions)
        if name.split(".")[0] not in {*sys.stdlib_module_names, "keras", "numpy", "keras_attn"}
        # A backend's own file, which only the dispatch beside it imports.
        and not (room == "ops" and path.stem.startswith(f"{name.split('.')[0]}_"))
    ]
    assert found == []


@pytest.mark.parametrize("room", CATALOGUE)
def test_every_public_idea_names_its_source(room):
    module = importlib.import_module(f"keras_attn.{room}")
    ideas = [getattr(module, name) for name in module.__all__ if name not in RESOLVERS]
    unsourced = [
        idea.__qualname__
        for idea in ideas
        if (inspect.isclass(idea) or inspect.isfunction(idea))
        and not re.search(r"^\s*Reference:", idea.__doc__ or "", re.MULTILINE)
    ]
    assert unsourced == []


@pytest.mark.parametrize("room", CATALOGUE)
def test_every_axis_lists_its_public_names(room):
    module = importlib.import_module(f"keras_attn.{room}")
    assert module.__all__
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_files_stay_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST


def unmade_names(code):
    """The names that `code` uses and neither makes nor imports."""
    nodes = list(ast.walk(ast.parse(code)))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    made = {name.id for name in names if not isinstance(name.ctx, ast.Load)}
    made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    made |= {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    aliases = [a for n in nodes if isinstance(n, (ast.Import, ast.ImportFrom)) for a in n.names]
    made |= {(alias.asname or alias.name).split(".")[0] for alias in aliases}
    return {name.id for name in names} - made - set(dir(builtins))


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_examples_import_what_they_use(path):
    """They are there to be copied; doctest lends them the names of their file."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    texts = [ast.get_docstring(n) or "" for n in ast.walk(parse(path)) if isinstance(n, documented)]
    examples = [doctest.DocTestParser().get_examples(text) for text in texts]
    codes = ["".join(example.source for example in found) for found in examples]
    assert [names for names in map(unmade_names, codes) if names] == []


@pytest.mark.parametrize(
    "code, unmade",
    [
        ("import numpy as np\nnp.ones(2)", set()),
        ("from a import b as c\nc(lambda x: [x + y for y in range(2)])", set()),
        ("f(x=keras.ops)", {"f", "keras"}),
        ("import a.b\na.b, b", {"b"}),
        ("from a import b as c\nb", {"b"}),
    ],
)
def test_unmade_names(code, unmade):
    assert unmade_names(code) == unmade


def test_every_folder_of_code_is_a_package():
    folders = {path.parent for path in CODE if HOUSE / "tests" not in path.parents}
    assert [name_of(f) for f in sorted(folders) if not (f / "__init__.py").exists()] == []


@pytest.mark.skipif(not (HOUSE / ".git").exists(), reason="git knows which files are ours")
def test_top_level_holds_only_what_the_design_names():
    listed = subprocess.run(
        ["git", "ls-files"], cwd=HOUSE, capture_output=True, text=True, check=True
    )
    top = {line.split("/")[0] for line in listed.stdout.splitlines()}
    extra = {name for name in top if not name.startswith(".")} - {
        *("setup.cfg", "pyproject.toml", "README.md", "LICENSE"),
        *ROOFS,
    }
    assert extra == set()


def test_code_is_clean_for_ruff():
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--no-cache", "--quiet", "."],
        cwd=HOUSE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# Keras's NumPy backend borrows convolutions and transforms that attention does not use from JAX
# and SciPy: stand-ins let the rule be tested where neither is installed.
STAND_INS = """
import sys
from unittest import mock

for name in ("jax", "jax.lax", "keras.src.backend.jax.math", "scipy", "scipy.linalg"):
    sys.modules[name] = mock.MagicMock()
"""

USE_THE_CORE = """
import keras, numpy as np
import keras_attn
from keras_attn import depth, layers, memory, models, patterns, positions, residuals, scores

x = keras.Input((None, 6))
attention = layers.MultiHeadAttention(2, 3, score="additive", pattern="causal")
block = layers.TransformerBlock(attention, layers.FeedForward(7))
model = keras.Model(x, block(positions.Sinusoidal()(x)))
y = keras.ops.convert_to_numpy(model(np.ones((2, 5, 6), "float32")))
assert y.shape == (2, 5, 6) and np.isfinite(y).all()

sizes = dict(vocabulary_size=11, num_layers=1, num_heads=2, hidden_dim=6, intermediate_dim=7)
gpt = models.gpt(**sizes, max_length=8)
logits = keras.ops.convert_to_numpy(gpt({"token_ids": np.array([[2, 4, 5, 3]])}))
assert logits.shape == (1, 4, 11) and np.isfinite(logits).all()
"""


def printed(backend, program):
    done = start_on(backend, program)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("backend", INSTALLED or ["numpy"])
def test_the_core_runs_without_tensorflow(backend):
    printed(backend, (STAND_INS if backend == "numpy" else "") + USE_THE_CORE)


def test_importing_keras_attn_loads_no_optional_package():
    """Keras itself imports Matplotlib where it is installed, so what counts is what we add."""
    code = "import keras, {0}, sys; print(*sorted({{n.split('.')[0] for n in sys.modules}}))"
    before = set(printed("tensorflow", code.format("numpy")).split())
    after = set(printed("tensorflow", code.format("keras_attn")).split())
    assert "keras" in before and "keras_attn" not in before
    added = {name for name in after - before if name not in sys.stdlib_module_names}
    assert added == {"keras_attn"}
