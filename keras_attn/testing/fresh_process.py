"""Loading a model in a process that has seen nothing of this one."""

import json
import os
import subprocess
import sys
import tempfile

import keras
import numpy as np

from keras_attn.testing.running import NotApplicable

SCRIPT = """
import importlib, importlib.util, json, sys

with open(sys.argv[1]) as file:
    job = json.load(file)
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
    """Run a new interpreter to its end; the library's own tests put a faster start in its place."""
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )


def predict_in_a_fresh_process(path, layer_class, inputs):
    """The results, a list of arrays, of the model saved at `path`.

    The process imports the module of `layer_class` and knows no more of the layer.
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
        written = os.path.join(directory, "job.json")
        with open(written, "w", encoding="utf-8") as stream:
            json.dump(job, stream)
        environment = {**os.environ, "KERAS_BACKEND": keras.backend.backend()}
        done = run_python("-c", SCRIPT, written, environment=environment)
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or ["no message"]
            raise RuntimeError(f"a fresh process could not load the model: {last[0]}")
        with np.load(job["outputs"]) as outputs:
            return [outputs[name] for name in sorted(outputs)]
