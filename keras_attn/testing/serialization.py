"""Copies by configuration, saved models and exports are the same layer."""

import contextlib
import inspect
import json
import os
import subprocess
import sys
import tempfile

import keras
import numpy as np

from keras_attn.registry import unbuilt
from keras_attn.testing.numerics import compare, describe_shapes, equal, to_arrays
from keras_attn.testing.subject import NotApplicable

NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def config(subject):
    """`from_config(get_config())` makes the same layer."""
    layer = subject.layer
    actual = layer.get_config()
    for name, parameter in inspect.signature(type(layer).__init__).parameters.items():
        if name != "self" and parameter.kind in NAMED and name not in actual:
            yield (
                f"`get_config()` leaves out the constructor's argument `{name}`, "
                "so a copy or a file loses it."
            )
    copy = type(layer).from_config(layer.get_config())
    # Parts of a built layer say how to build them; those of the copy are not built yet.
    actual, again = unbuilt(actual), unbuilt(copy.get_config())
    changed = sorted(
        key for key in actual.keys() | again.keys() if actual.get(key) != again.get(key)
    )
    if changed:
        yield f"The copy made by `from_config` differs in {', '.join(map(repr, changed))}."
    subject.call(copy, *subject.inputs)
    expected, shapes = _weight_shapes(layer), _weight_shapes(copy)
    if shapes != expected:
        yield (
            "The copy made by `from_config` was expected to have weights of the same shapes, "
            f"{expected}, but has {shapes}."
        )
        return
    copy.set_weights(layer.get_weights())
    if not equal(subject.call(copy, *subject.inputs), subject.call(layer, *subject.inputs)):
        yield "The copy made by `from_config`, with the same weights, gives another output."


def building(subject):
    """`build` makes all weights, once; loading a file relies on it."""
    called = subject.copy()
    expected = _weight_shapes(called)
    subject.call(called, *subject.inputs)
    if _weight_shapes(called) != expected:
        yield f"A second call changed the weights from {expected} to {_weight_shapes(called)}."
    built = type(called).from_config(called.get_config())
    built.build_from_config(called.get_build_config())
    if _weight_shapes(built) != expected:
        yield (
            "`build` without a call was expected to make weights of the shapes "
            f"{expected}, but made {_weight_shapes(built)}."
        )


def _weight_shapes(layer):
    return [tuple(weight.shape) for weight in layer.weights]


def saving(subject):
    """`model.save` keeps the weights unchanged; `load_model` restores all of them."""
    layer = subject.copy()
    before, custom = layer.get_weights(), {type(layer).__name__: type(layer)}
    with _saved_model(subject, layer) as (path, expected):
        loaded = keras.models.load_model(path, custom, compile=False)
    loaded.compile(jit_compile=False)
    if not equal(layer.get_weights(), before):
        yield "Saving the model changed its weights."
    restored = loaded.get_weights()
    if len(restored) != len(before) or not equal(restored, before):
        yield "The weights of the loaded model are not those that were saved."
    sentence = "The loaded model was expected to give the output of the saved one"
    yield from compare(sentence, subject.predict(loaded, subject.inputs), expected)


def fresh_process(subject):
    """A new process that only imports the layer's module loads the model."""
    with _saved_model(subject, subject.copy()) as (path, expected):
        inputs = subject.model_inputs(subject.inputs)
        actual = predict_in_a_fresh_process(path, type(subject.layer), inputs)
    sentence = "The model loaded in a fresh process was expected to give the same output"
    yield from compare(sentence, actual, expected)


@contextlib.contextmanager
def _saved_model(subject, layer):
    """Yield the path of a model around `layer`, and its predictions."""
    model = subject.model(layer)
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "model.keras")
        expected = subject.predict(model, subject.inputs)
        model.save(path)
        yield path, expected


def export(subject):
    """`model.export` writes a SavedModel that a server runs, at any size, with equal outputs."""
    if keras.backend.backend() != "tensorflow":
        raise NotApplicable("the backend is not TensorFlow")
    import tensorflow as tf

    from keras_attn.export import unservable_ops

    layer = subject.copy()
    model = subject.model(layer)
    with tempfile.TemporaryDirectory() as directory:
        model.export(directory, verbose=False)
        unservable = unservable_ops(directory)
        served = tf.saved_model.load(directory)
        for inputs in subject.inputs_of_two_sizes():
            tensors = [tf.convert_to_tensor(x) for x in subject.model_inputs(inputs)]
            shapes = describe_shapes(inputs)
            sentence = f"The SavedModel was expected to give the same output on inputs {shapes}"
            actual, expected = served.serve(tensors), subject.call_with_masks(layer, inputs)
            yield from compare(sentence, to_arrays(actual), expected)
    if unservable:
        yield f"The SavedModel has operations that TensorFlow Serving does not run: {unservable}."


# The job, module and class names and paths, is one argument in JSON.
LOAD_AND_PREDICT = """
import importlib, importlib.util, json, sys

job = json.loads(sys.argv[1])
sys.path[:] = job["paths"]

import keras
import numpy as np

try:
    module = importlib.import_module(job["module"])
    layer = getattr(module, job["layer"])
except (ImportError, AttributeError):
    spec = importlib.util.spec_from_file_location("module_of_the_layer", job["file"])
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    layer = getattr(module, job["layer"])

model = keras.models.load_model(job["model"], {job["layer"]: layer}, compile=False)
model.compile(jit_compile=False)
with np.load(job["inputs"]) as inputs:
    results = model.predict_on_batch([inputs[name] for name in sorted(inputs)])
results = [keras.ops.convert_to_numpy(x) for x in keras.tree.flatten(results)]
np.savez(job["outputs"], **{f"{i:03}": x for i, x in enumerate(results)})
"""


def run_python(*arguments, environment):
    """Run a new interpreter to its end; the library's own tests substitute a faster start."""
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )


def predict_in_a_fresh_process(path, layer_class, inputs):
    """Load the model saved at `path` in a new process; the results are a list of arrays.

    The process imports the module of `layer_class` and nothing else of this process.
    """
    module = sys.modules.get(layer_class.__module__)
    file = getattr(module, "__file__", None)
    if file is None or "<locals>" in layer_class.__qualname__:
        raise NotApplicable("the layer's class cannot be imported from a file")
    with tempfile.TemporaryDirectory() as directory:
        job = {
            "module": layer_class.__module__,
            "layer": layer_class.__qualname__,
            "file": os.path.abspath(file),
            "paths": [os.path.abspath(entry) for entry in sys.path],
            "model": path,
            "inputs": os.path.join(directory, "inputs.npz"),
            "outputs": os.path.join(directory, "outputs.npz"),
        }
        np.savez(job["inputs"], **{f"{i:03}": x for i, x in enumerate(inputs)})
        environment = {**os.environ, "KERAS_BACKEND": keras.backend.backend()}
        done = run_python("-c", LOAD_AND_PREDICT, json.dumps(job), environment=environment)
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or ["no message"]
            raise RuntimeError(f"a fresh process could not load the model: {last[0]}")
        with np.load(job["outputs"]) as outputs:
            return [outputs[name] for name in sorted(outputs)]
