"""One step of the table: what a tiny model with each value of the catalogue does on this backend.

    KERAS_BACKEND=tensorflow python tests/torch_backend/rows.py write FOLDER
    KERAS_BACKEND=torch python tests/torch_backend/rows.py copy FOLDER OTHER
    KERAS_BACKEND=tensorflow python tests/torch_backend/rows.py read FOLDER
    KERAS_BACKEND=jax python tests/torch_backend/rows.py rewrite FOLDER OTHER

`write` makes models with random weights. Beside the file of each it writes what the model does:
its outputs, the tokens that it generates and its gradients in a step of training. `copy` makes each
model too, loads the file of the first folder, writes it into the other one, and does all of it
again; `read` loads the file and computes the outputs, `rewrite` also writes it. Each prints a line
of JSON for a value: errors, and the largest difference from what the first writer did. Names after
the folders choose some values.
"""

import json
import shutil
import sys
from pathlib import Path

import keras
import numpy as np
from catalogue_models import LOSSES, inputs_of, make
from catalogue_support import NAMES, is_stateful, scrambled

from keras_attn import generation, losses

BATCH, NEW = 2, 4
LEAST = 0.01  # the rounding of weights near 1 is that of smaller gradients too


def outputs(model, inputs):
    """Return the outputs of a call in inference, by their order."""
    if is_stateful(model):
        model.reset()
    elif getattr(model, "memory", None) is not None:
        inputs = {**inputs, **model.initial_memory(BATCH)}
    return [keras.ops.convert_to_numpy(x) for x in keras.tree.flatten(model(inputs))]


def generated(model, inputs):
    """Return greedily decoded tokens; None for a model without tokens to decode."""
    if not hasattr(model, "start"):
        return None
    prompt = inputs["source_ids" if "source_ids" in inputs else "token_ids"]
    if model.max_length is not None:
        prompt = prompt[:, : model.max_length - NEW]
    results = generation.generate(model, prompt, "greedy", NEW)
    return [keras.ops.convert_to_numpy(x) for x in results]


def trained(model, inputs):
    """Return the change of each weight by one step of gradient descent in `fit`: its gradient."""
    if is_stateful(model):
        loss, targets = losses.LabelSmoothedCrossentropy(), inputs["token_ids"]
        model.reset()
    else:
        if getattr(model, "memory", None) is not None:
            state = keras.tree.map_structure(_array, model.initial_memory(BATCH))
            inputs = {**inputs, **state}
        targets = keras.tree.map_structure(_target, model(inputs))
        loss = keras.tree.map_structure(_loss, targets)
    for variable in model.variables:
        if variable.path.endswith("seed_generator_state"):  # which no file holds
            variable.assign([7, 0])
    before = [_array(weight) for weight in model.trainable_weights]
    model.compile(keras.optimizers.SGD(1.0), loss)
    model.fit(inputs, targets, batch_size=BATCH, epochs=1, shuffle=False, verbose=0)
    after = map(_array, model.trainable_weights)
    return [new - old for new, old in zip(after, before, strict=True)]


def _array(weight):
    """Return the value of a weight, not the memory that training changes."""
    return np.array(keras.ops.convert_to_numpy(weight))


def _target(output):
    return np.zeros(output.shape, keras.backend.standardize_dtype(output.dtype))


def _loss(target):
    """Return a loss of any output: the mean of squares, none for integers."""
    return "mse" if target.dtype.kind == "f" else None


ACTS = {"called": outputs, "generated": generated, "trained": trained}


def results(model, names=tuple(ACTS)):
    """Return what a model does: a list of arrays by name; and errors by name."""
    arrays, errors = {}, {}
    for name in names:
        try:
            result = ACTS[name](model, inputs_of(model)[0])
        except Exception as error:
            errors[name] = sentence(error)
        else:
            if result is not None:
                arrays[name] = result
    return arrays, errors


def sentence(error):
    return f"{type(error).__name__}: {error}"[:300]


def write(name, folder):
    """Make, save and try a model."""
    if name in LOSSES:
        return try_loss(name)
    keras.utils.set_random_seed(0)
    model = scrambled(make(name))
    model.save(folder / f"{name}.keras")
    arrays, errors = results(model)
    named = {f"{act}/{i}": x for act, part in arrays.items() for i, x in enumerate(part)}
    np.savez(folder / f"{name}.npz", **named)
    return {**dict.fromkeys(arrays, 0.0), "errors": errors}


def try_loss(name):
    value = keras.ops.convert_to_numpy(LOSSES[name]())
    return {"errors": {} if np.isfinite(value).all() else {"trained": f"the loss is {value}"}}


def copy(name, folder, other):
    """Make a model; load the one in a file, write it again and try it."""
    if name in LOSSES:
        return try_loss(name)
    make(name)
    model = keras.models.load_model(folder / f"{name}.keras")
    model.save(other / f"{name}.keras")
    shutil.copy(folder / f"{name}.npz", other)
    return compared(name, folder, *results(model))


def read(name, folder, other=None):
    """Load the model in a file, write it again if there is another folder; compute its outputs."""
    if name in LOSSES:
        return {"errors": {}}
    model = keras.models.load_model(folder / f"{name}.keras")
    if other is not None:
        model.save(other / f"{name}.keras")
        shutil.copy(folder / f"{name}.npz", other)
    return compared(name, folder, *results(model, ["called"]))


def compared(name, folder, arrays, errors):
    """Return the largest difference of each result from that of the writer, and the errors."""
    row = {"errors": errors}
    with np.load(folder / f"{name}.npz") as written:
        for act, part in arrays.items():
            expected = [x for key, x in written.items() if key.startswith(f"{act}/")]
            row[act] = max(difference(*pair) for pair in zip(part, expected, strict=True))
    return row


def difference(x, y):
    """Return the largest difference, relative to the largest number unless that is near 0."""
    if x.shape != y.shape:
        return float("inf")
    x, y = x.astype("float64"), y.astype("float64")
    return float(np.abs(x - y).max(initial=0.0) / max(LEAST, np.abs(y).max(initial=0.0)))


STEPS = {"write": (write, 1), "copy": (copy, 2), "rewrite": (read, 2), "read": (read, 1)}


def main(step, *arguments):
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.run_functions_eagerly(True)  # a graph takes seconds to make, and runs once
    try_one, num_folders = STEPS[step]
    folders = [Path(folder) for folder in arguments[:num_folders]]
    for name in arguments[num_folders:] or NAMES:
        try:
            row = try_one(name, *folders)
        except Exception as error:
            row = {"errors": {"made": sentence(error)}}
        print(json.dumps({"name": name, **row}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
