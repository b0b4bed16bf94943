"""Try out what each value of the catalogue supports, on a tiny model, and write the results.

    PYTHONPATH=. python tests/support/catalogue_support.py [NAME ...]
    PYTHONPATH=. python tests/support/catalogue_support.py --stale

writes `recipes/catalogue/support.json`, which the catalogue reads; with names, only their lines.
All of them take five minutes. `--stale` measures those whose code, or whose libraries, have changed
since: `tests/recipes/catalogue/measured.json` keeps a digest for each.
"""

import ast
import functools
import hashlib
import importlib
import inspect
import json
import re
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import keras
import numpy as np
from catalogue_models import (
    BLOCKS,
    LENGTH,
    LOSSES,
    MODELS,
    NOT_CAUSAL,
    inputs_of,
    make,
    masked_model,
)
from keras import ops

from keras_attn import memory

FILE = Path(__file__).resolve().parents[2] / "recipes/catalogue/support.json"
DIGESTS = Path(__file__).resolve().parents[1] / "recipes/catalogue/measured.json"
LIBRARIES = "keras", "tensorflow", "tf2onnx", "onnxruntime", "ai-edge-litert"
NAMES = [*BLOCKS, *MODELS, *LOSSES]
FIRST = LENGTH - 2


def recorded():
    """Return the results in the committed file, by name."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


def digest(name):
    """Return a digest of the code of a value, of what it imports, and of the libraries."""
    package, attribute = name.split(".")
    value = getattr(importlib.import_module(f"keras_attn.{package}"), attribute)
    modules = {value.__module__, *imported(value.__module__)}
    # A module that only moves keeps its digest: its name does not count.
    parts = sorted(code_of(module) for module in modules)
    parts += [".".join(version(library).split(".")[:2]) for library in LIBRARIES]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


@functools.cache
def code_of(module):
    return statements(inspect.getsource(sys.modules[module]))


@functools.cache
def imported(module):
    """Return the modules of keras_attn that define what a module imports."""
    nodes = ast.walk(ast.parse(inspect.getsource(sys.modules[module])))
    modules = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module.startswith("keras_attn"):
            source = importlib.import_module(node.module)
            values = [getattr(source, alias.name) for alias in node.names]
            for value in values:
                place = value.__name__ if inspect.ismodule(value) else node.module
                modules.add(getattr(value, "__module__", place) or place)
    return {name for name in modules if name.startswith("keras_attn")}


def statements(source):
    """Return the source without imports, docstrings, comments and spaces."""
    lines = re.sub(r"(?m)^[ ]*#.*|  # .*", "", source).splitlines()
    for node in ast.walk(ast.parse(source)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or isinstance(node, (ast.Import, ast.ImportFrom)):
            lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    return "".join("".join(lines).split())


def stale():
    """Return the names whose digests are not those of their last measurement."""
    digests = json.loads(DIGESTS.read_text(encoding="utf-8")) if DIGESTS.exists() else {}
    return [name for name in NAMES if digests.get(name) != digest(name)]


def scrambled(model):
    """Return the model with random weights, biases and norms too."""
    for i, weight in enumerate(model.trainable_weights):
        weight.assign(np.random.default_rng(i).normal(0.0, 0.5, weight.shape))
    return model


def call(model, inputs):
    """Return the first output of each position."""
    if getattr(model, "memory", None) is not None and not is_stateful(model):
        inputs = {**inputs, **model.initial_memory(2)}
    if is_stateful(model):
        model.reset()
    outputs = model(inputs, training=False)
    if isinstance(outputs, dict):
        outputs = next(x for name, x in outputs.items() if "memory" not in name)
    return ops.convert_to_numpy(outputs)


def is_stateful(model):
    return isinstance(model, memory.StatefulSegments)


def causality(model):
    """Return "yes", "no", or "values" if later inputs change only which earlier ones are read."""
    inputs, name = inputs_of(model)
    changed = inputs[name].copy()
    changed[:, FIRST:] = changed[::-1, FIRST - 1 : FIRST] + (changed.dtype.kind == "f")
    before, after = (call(model, {**inputs, name: x})[:, :FIRST] for x in (inputs[name], changed))
    if np.allclose(before, after, atol=1e-6):
        return "yes"
    layer = getattr(model, "depth", None) or getattr(model, "encoder", None)
    return "values" if layer is not None and not _future_gradient(layer) else "no"


def _future_gradient(layer):
    """Return the largest gradient of the first outputs with respect to later inputs."""
    import tensorflow as tf

    x = tf.random.stateless_normal((2, LENGTH, 8), (0, 1))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x, training=False)[:, :FIRST] ** 2
    return float(tf.reduce_max(tf.abs(tape.gradient(y, x)[:, FIRST:])))


def cached(model):
    """Return "yes" if steps give the outputs of the whole, else "differs" or "no"."""
    inputs, name = inputs_of(model)
    if is_stateful(model) or getattr(model, "memory", None) is not None:
        return (
            "yes"
            if np.allclose(call(model, inputs), _in_segments(model, inputs, name), atol=1e-4)
            else "differs"
        )
    if not hasattr(model, "start"):
        return "no"
    try:
        constants, cache = model.start(inputs, LENGTH)
        steps = []
        # A prompt, and two tokens alone.
        for places in np.split(np.arange(LENGTH), (FIRST, FIRST + 1)):
            ids = ops.convert_to_tensor(inputs[name][:, places])
            logits, cache = model.step(ids, constants, cache, ops.convert_to_tensor(places))
            steps.append(ops.convert_to_numpy(logits))
    except ValueError:
        return "no"
    return (
        "yes"
        if np.allclose(np.concatenate(steps, 1), call(model, inputs), atol=1e-4)
        else "differs"
    )


def _in_segments(model, inputs, name):
    parts, state = [], {}
    if is_stateful(model):
        model.reset()
    else:
        state = model.initial_memory(2)
    for part in np.split(inputs[name], (2, 3), axis=1):
        outputs = model({name: part, **state}, training=False)
        if isinstance(outputs, dict):
            state = {key: outputs.pop(key) for key in [*outputs] if "memory" in key}
            (outputs,) = outputs.values()
        parts.append(ops.convert_to_numpy(outputs))
    return np.concatenate(parts, axis=1)


def saved_model(model):
    """Return "export" or, of what `keras_attn.export` does not know, "keras"; None if refused."""
    from keras_attn import export

    with tempfile.TemporaryDirectory() as folder:
        if isinstance(model, keras.Model) and type(model).__name__ == "Functional":
            model.export(f"{folder}/model", verbose=False)
            return "keras"
        try:
            export.saved_model(model, folder, max_length=3, max_source_length=3)
        except ValueError:
            return None
    return "export"


def onnx(model):
    """Return the first part that converts, the whole loop before a step; None for no part."""
    from keras_attn import export
    from keras_attn.export._onnx.graphs import functions_of_ids, parts_of

    inner = model.model if is_stateful(model) else model
    try:
        parts = parts_of(inner, functions_of_ids(inner, max_length=3))
    except ValueError:
        return None
    with tempfile.TemporaryDirectory() as folder:
        for part in parts:
            try:
                export.onnx(model, f"{folder}/x.onnx", part, max_length=3, max_source_length=3)
            except ValueError:
                continue
            return part
    return None


def litert(model):
    """Return the first signature that converts, the whole loop before a step; None for none."""
    from keras_attn import export

    with tempfile.TemporaryDirectory() as folder:
        for name in ("generate", "step", "logits", "classify", "act", "forecast"):
            try:
                lengths = {"max_length": 3, "max_source_length": 3}
                export.litert(model, f"{folder}/x.tflite", [name], **lengths)
            except ValueError:
                continue
            return name
    return None


def ctranslate2(model):
    from keras_attn import export

    with tempfile.TemporaryDirectory() as folder:
        try:
            export.ctranslate2(model, f"{folder}/model", max_length=8)
        except (ValueError, AttributeError):
            return False
    return True


def trains_here(name):
    """Return True if the current backend computes a finite loss, and its gradient on JAX."""
    if name in LOSSES:
        return bool(np.isfinite(np.sum(ops.convert_to_numpy(LOSSES[name]()))))
    model = scrambled(make(name))
    inputs, _ = inputs_of(model)
    return train_once(model.model if is_stateful(model) else model, inputs)


def train_once(model, inputs):
    import jax

    if getattr(model, "memory", None) is not None:
        inputs = {**inputs, **model.initial_memory(2)}
    inputs = {name: ops.convert_to_tensor(x) for name, x in inputs.items()}

    def loss(trainable, fixed):
        outputs, _ = model.stateless_call(trainable, fixed, inputs, training=True)
        floats = [x for x in jax.tree.leaves(outputs) if x.dtype == "float32"]
        return sum((x**2).mean() for x in floats)

    weights = [
        [v.value for v in vs] for vs in (model.trainable_variables, model.non_trainable_variables)
    ]
    loss_and_gradients = jax.jit(jax.value_and_grad(loss))(*weights)
    return all(np.isfinite(x).all() for x in jax.tree.leaves(loss_and_gradients))


def support_of(name):
    """Return what the value supports on TensorFlow."""
    if name in LOSSES:
        trains = bool(np.isfinite(np.sum(ops.convert_to_numpy(LOSSES[name]()))))
        return {"tensorflow": trains}
    model = scrambled(make(name))
    runs = bool(np.isfinite(call(model, inputs_of(model)[0])).all())
    support = {"causal": causality(model), "cached": cached(model), "tensorflow": runs}
    if name in NOT_CAUSAL:
        argument, block = NOT_CAUSAL[name]
        other = scrambled(masked_model(block()))
        support["causal_with"] = {argument: causality(other)}
    exports = {"saved_model": saved_model(model), "onnx": onnx(model)}
    exports["litert"] = litert(model)
    return {**support, **exports, "ctranslate2": ctranslate2(model)}


ON_JAX = """
import json, sys
from catalogue_support import NAMES, trains_here
names = sys.argv[1:] or NAMES
trains = {}
for name in names:
    try:
        trains[name] = trains_here(name)
    except Exception as error:
        print(name, repr(error)[:300], file=sys.stderr)
        trains[name] = False
print(json.dumps(trains))
"""


def trains_on_jax(*names):
    """Return a dict of the names and True where the value trains on JAX."""
    from fork_server import ROOT
    from other_backend import run_on

    return run_on("jax", ON_JAX, *names, PYTHONPATH=f"{ROOT}:{Path(__file__).parent}")


def main():
    names = stale() if sys.argv[1:] == ["--stale"] else sys.argv[1:] or NAMES
    measured = {}
    for name in names:
        measured[name] = support_of(name)
        print(name, measured[name], flush=True)
    for name, works in (trains_on_jax(*names) if names else {}).items():
        measured[name]["jax"] = works
    kept = {name: row for name, row in recorded().items() if name in NAMES}
    write(FILE, {**kept, **measured})
    digests = json.loads(DIGESTS.read_text(encoding="utf-8")) if DIGESTS.exists() else {}
    write(DIGESTS, {**digests, **{name: digest(name) for name in names}})


def write(file, rows):
    lines = [f'"{name}": {json.dumps(rows[name], sort_keys=True)}' for name in sorted(rows)]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
