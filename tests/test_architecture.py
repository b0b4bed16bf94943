"""Rules about the source: layers of imports, names, docstrings, and a core without TensorFlow."""

import ast
import builtins
import doctest
import functools
import importlib
import importlib.util
import inspect
import json
import pkgutil
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest
from fork_server import ROOT, run_python

PACKAGE = ROOT / "keras_attn"
LIBRARY = sorted(PACKAGE.rglob("*.py"))
TREES = ("keras_attn", "recipes", "serving", "tests")
CODE = sorted(path for tree in TREES for path in (ROOT / tree).rglob("*.py"))
PUBLISHED = [path for path in CODE if ROOT / "tests" not in path.parents]

# Packages of keras_attn that may import TensorFlow or an optional package when they are imported.
# A module of `compat` belongs to one library, and only what needs that library imports it.
OPTIONAL = {"text", "export", "compat"}
# Packages that build their values on Keras alone, on any backend.
CORE = {
    *("registry", "initializers", "ops", "attention", "scores", "patterns", "positions", "norms"),
    *("residuals", "feed_forward", "layers", "memory", "depth", "models"),
}
CATALOGUE = [
    *("layers", "scores", "patterns", "positions", "norms", "residuals", "feed_forward"),
    *("depth", "memory", "models"),
]
# Functions that look names up and base classes, which implement no paper.
BASES = {
    "Bias",
    "Block",
    "KernelScore",
    "Memory",
    "Norm",
    "Position",
    "PositionMixer",
    "Residual",
    "RotaryScaling",
    "Score",
    "ScoreLayer",
}
NOT_FROM_PAPERS = {"get", "create", "presets", *BASES}
# Packages whose code no exported graph of numbers contains.
OUTSIDE_OF_GRAPHS = {"convert", "initializers", "testing", "text", "viz"}
# Indices with `None` elsewhere that are of no tensor: a dict's key and NumPy arrays.
INDEXED_WITH_NONE = {
    "arrays[None]",
    "np.abs(rows).argmax(axis=1)[:, None]",
    "self.blocks()[..., None]",
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@functools.cache
def parse(path):
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def package_of(path):
    """The package or module of keras_attn that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def docstrings(path):
    """(line, docstring) of a module, its classes and its functions."""
    for node in ast.walk(parse(path)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node):
            yield getattr(node, "lineno", 1), ast.get_docstring(node)


def check_with(*command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]


def test_ruff_finds_nothing():
    check_with(sys.executable, "-m", "ruff", "check", "--no-cache", "--quiet", ".")


def test_imports_obey_the_contracts_in_pyproject():
    check_with(Path(sys.executable).with_name("lint-imports"), "--no-cache")


def imports(path, *, inside_functions):
    """(line, dotted name) of each absolute import."""
    pending = [parse(path)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module
        if inside_functions or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            pending.extend(ast.iter_child_nodes(node))


def test_library_modules_import_only_keras_and_numpy():
    """Text and export apart, no module needs TensorFlow or an optional package to be imported.

    In the core not even a function imports one, except where `backend` dispatches.
    """
    required = {*sys.stdlib_module_names, "keras", "numpy", "keras_attn"}
    forbidden = []
    for path in LIBRARY:
        package = package_of(path)
        if package in OPTIONAL:
            continue
        for line, name in imports(path, inside_functions=package in CORE):
            backend = name.split(".")[0]
            # A backend's own files, which only the dispatch beside them imports.
            is_dispatched = package == "backend" and path.stem.partition("_")[0] == backend
            if backend not in required and not is_dispatched:
                forbidden.append(f"{name_of(path)}:{line}: {name}")
    assert forbidden == []


def test_graphs_insert_axes_by_expand_dims():
    """An index with `None` of a tensor of two unknown sizes converts neither to LiteRT nor ONNX."""
    found = set()
    for path in LIBRARY:
        if package_of(path) in OUTSIDE_OF_GRAPHS:
            continue
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Subscript):
                parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
                if any(ast.unparse(part) in ("None", "np.newaxis", "tf.newaxis") for part in parts):
                    found.add(ast.unparse(node))
    assert found == INDEXED_WITH_NONE


def test_public_names_cite_their_paper():
    unsourced = []
    for package in CATALOGUE:
        module = importlib.import_module(f"keras_attn.{package}")
        for name in set(module.__all__) - NOT_FROM_PAPERS:
            value = getattr(module, name)
            is_documented = inspect.isclass(value) or inspect.isfunction(value)
            if is_documented and not re.search(r"(?m)^\s*Reference:", value.__doc__ or ""):
                unsourced.append(f"{package}.{name}")
    assert unsourced == []


def test_names_in_all_exist():
    missing = []
    for path in LIBRARY:
        if path.name == "__init__.py" and package_of(path) not in ("backend", "compat"):
            parts = path.relative_to(ROOT).parent.parts
            module = importlib.import_module(".".join(parts))
            if parts[1:] and parts[1] in CATALOGUE and len(parts) == 2:
                assert module.__all__, module.__name__
            names = getattr(module, "__all__", ())
            missing += [f"{module.__name__}.{name}" for name in names if not hasattr(module, name)]
    assert missing == []


def test_keras_adds_nothing_but_biases():
    """Keras's sum of (2, 8, 8) and (8, 1) is along the last axis on TensorFlow, without an error.

    Rows and a bias have one axis in common, and TensorFlow joins their sum to the product before.
    """
    sums = [
        (name_of(path), text)
        for path in LIBRARY
        for text in re.findall(r"\bops\.add\b.*", path.read_text(encoding="utf-8"))
    ]
    assert sums == [("keras_attn/layers/multi_head_attention.py", "ops.add(y, bias)")]


def test_no_name_hides_a_submodule():
    """`package.name` is the submodule, never a function imported from it."""
    hidden = []
    for submodule in pkgutil.walk_packages([str(PACKAGE)], "keras_attn."):
        parent, name = submodule.name.rsplit(".", 1)
        module = sys.modules.get(parent)
        value = getattr(module, name, None)
        if value is not None and not inspect.ismodule(value):
            hidden.append(submodule.name)
    assert hidden == []


def test_files_have_at_most_700_lines():
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in CODE}
    assert [name_of(path) for path in CODE if lines[path] > 700] == []


def test_docstrings_begin_with_an_imperative_or_a_noun():
    riddle = re.compile(r'(?m)^[ ]*r?"""(What|Whether|Where|How|Who)\b.*')
    texts = {path: path.read_text(encoding="utf-8") for path in PUBLISHED}
    riddles = [f"{name_of(path)}: {m[0]}" for path in texts for m in riddle.finditer(texts[path])]
    assert riddles == []


def test_prose_calls_packages_and_errors_by_their_names():
    metaphors = re.compile(r"\b(is told|houses?|rooms?|floors?\b(?![(`]| division)|lobby)\b")
    lines = []
    for path in PUBLISHED:
        if not metaphors.search(path.read_text(encoding="utf-8")):
            continue
        with open(path, "rb") as file:
            tokens = list(tokenize.tokenize(file.readline))
        prose = [(t.start[0], t.string) for t in tokens if t.type == tokenize.COMMENT]
        prose += docstrings(path)
        lines += [f"{name_of(path)}:{n}: {m[0]}" for n, t in prose for m in metaphors.finditer(t)]
    assert lines == []


def undefined_names(code):
    """The names that `code` uses and neither defines nor imports."""
    nodes = list(ast.walk(ast.parse(code)))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    defined = {name.id for name in names if not isinstance(name.ctx, ast.Load)}
    defined |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    defined |= {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    aliases = [a for n in nodes if isinstance(n, (ast.Import, ast.ImportFrom)) for a in n.names]
    defined |= {(alias.asname or alias.name).split(".")[0] for alias in aliases}
    return {name.id for name in names} - defined - set(dir(builtins))


def test_docstring_examples_import_what_they_use():
    """Readers copy the examples; doctest alone would lend them the names of their file."""
    incomplete = []
    for path in LIBRARY:
        has_examples = ">>>" in path.read_text(encoding="utf-8")
        for line, text in docstrings(path) if has_examples else ():
            examples = doctest.DocTestParser().get_examples(text)
            if undefined := undefined_names("".join(example.source for example in examples)):
                incomplete.append(f"{name_of(path)}:{line}: {sorted(undefined)}")
    assert incomplete == []


def test_undefined_names():
    expected = {
        "import numpy as np\nnp.ones(2)": set(),
        "from a import b as c\nc(lambda x: [x + y for y in range(2)])": set(),
        "f(x=keras.ops)": {"f", "keras"},
        "import a.b\na.b, b": {"b"},
        "from a import b as c\nb": {"b"},
    }
    assert {code: undefined_names(code) for code in expected} == expected


def test_every_folder_of_code_is_a_package():
    folders = sorted({path.parent for path in PUBLISHED})
    assert [name_of(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_every_class_of_models_builds_its_optimizer():
    """TensorFlow would trace its training step twice."""
    classes = [
        (node.name, [ast.unparse(base) for base in node.bases])
        for path in PUBLISHED
        if "keras.Model" in path.read_text(encoding="utf-8")
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ClassDef)
    ]
    models = {name: bases for name, bases in classes if bases[-1:] == ["keras.Model"]}
    assert {"Model", "AuxiliaryLosses", "ProximalPolicy"} <= models.keys()
    without = [name for name, bases in models.items() if bases[-2:-1] != ["BuildsOptimizer"]]
    assert without == []


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git lists the tracked files")
def test_top_level_holds_only_what_the_design_names():
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    top = {line.split("/")[0] for line in listed.stdout.splitlines()}
    extra = {name for name in top if not name.startswith(".")} - {
        *("setup.cfg", "pyproject.toml", "README.md", "LICENSE"),
        *TREES,
    }
    assert extra == set()


@pytest.mark.slow
def test_importing_keras_attn_adds_no_other_package():
    """Keras itself imports Matplotlib where it is installed, so only additions count."""
    code = """
import json, sys
before = set(sys.modules)
import keras_attn
print(json.dumps(sorted({name.split(".")[0] for name in set(sys.modules) - before})))
"""
    done = run_python("-c", code)
    added = json.loads(done.stdout)
    assert {name for name in added if name not in sys.stdlib_module_names} == {"keras_attn"}


@pytest.mark.slow
def test_importing_keras_attn_costs_a_twentieth_of_importing_keras():
    # A collection of what Keras and TensorFlow hold is no cost of either import.
    code = """
import gc, time
gc.disable()
start = time.process_time()
import {}
print(time.process_time() - start)
"""
    command = [sys.executable, "-c", code.format("keras")]
    keras = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    # A first run may have to compile files, and other tests share the processor. These processes
    # are forked from one that has imported Keras.
    runs = (run_python("-c", code.format("keras_attn")).stdout for _ in range(8))
    assert any(float(seconds) < float(keras) / 20 for seconds in runs)
