"""Runs of all signatures of a LiteRT file on examples, beside the graph that was converted."""

import contextlib

import numpy as np
import tensorflow as tf

from keras_attn.export._litert.files import run_signature
from keras_attn.export.golden_outputs import outputs_match

# Relative to the greatest magnitude of an output.
TOLERANCE = 1e-5
# A tie within the rounding of float32 turns a token for one seed, a wrong graph all of them.
SEEDS = range(3)
# Steps after the prompt of an example: of one token, and of two.
STEPS = 2
_SLOTS = sum(range(STEPS + 1))


class Examples:
    """Example inputs of the signatures of a model, and the outputs of its graph for them.

    A signature reads what those before it gave: a step the cache of the prompt, then that of the
    first step. So each is compared alone, and errors do not add up.

    Args:
        signatures: `Signatures`.
        long: int. The longer length; the shorter one is three.
    """

    def __init__(self, signatures, long):
        self._functions, self._num_tokens = signatures.functions, signatures.num_tokens
        limit = long if signatures.max_length is None else signatures.max_length - _SLOTS
        self.shapes = [(1, max(1, min(3, limit))), (3, max(1, min(long, limit)))]

    def run(self, shape, seed=0):
        """Yield (signature, inputs, outputs), dicts of arrays, of the graph for a shape (B, T)."""
        random, state = np.random.default_rng(seed), {}
        for name, function in self._functions.items():
            specs = function.input_signature
            concrete = function.get_concrete_function()
            reads_state = any(spec.name in state for spec in specs)
            for width in range(1, 1 + STEPS if reads_state else 2):
                has_lengths = any(spec.name.endswith("lengths") for spec in specs)
                sizes = shape if has_lengths or not reads_state else (shape[0], width)
                inputs = {
                    spec.name: state[spec.name]
                    if spec.name in state
                    else self._example(spec, sizes, random)
                    for spec in specs
                }
                outputs = concrete(*map(tf.constant, inputs.values()))
                outputs = {key: x.numpy() for key, x in outputs.items()}
                yield name, inputs, outputs
                state |= outputs

    def _example(self, spec, shape, random):
        """Return an example of an input: ids, rows of different lengths, or small numbers."""
        batch, length = shape
        if spec.name == "noise":
            sizes = [batch if n is None else n for n in spec.shape]
            return random.uniform(0.0, 1.0, sizes).astype("float32")
        sizes = [batch, *(length if n is None else n for n in spec.shape[1:])][: spec.shape.rank]
        if spec.dtype.is_floating:
            return random.normal(0.0, 0.5, sizes).astype("float32")
        if spec.shape.rank == 0:
            return np.array(batch, "int32")
        if spec.shape.rank == 1:
            return (length - 2 * np.arange(batch) % length).astype("int32")
        if spec.shape.rank == 2:
            return random.integers(1, self._num_tokens, sizes, "int32", endpoint=True)
        return random.integers(0, 2, sizes, "int32")  # values of an image


def check_outputs(interpreter, examples, names):
    """Raise a `ValueError` unless the signatures `names` of a file give the graph's outputs."""
    for shape in examples.shapes:
        for seed in SEEDS:
            difference = _difference(interpreter, examples.run(shape, seed), names)
            if difference is None:
                break
        else:
            raise ValueError(
                f"{difference} in LiteRT differs from the model's for {shape[0]} rows of "
                f"{shape[1]}, so no file was written."
            )


def _difference(interpreter, runs, names):
    """Return the first output that differs, in words; None for none."""
    for name, inputs, outputs in runs:
        if name in names:
            results = run_checked(interpreter, name, inputs)
            for key, expected in outputs.items():
                if not outputs_match(expected, results[key], TOLERANCE):
                    return f"The output {key!r} of the signature {name!r}"
    return None


def run_checked(interpreter, name, inputs):
    """Return the outputs of a signature; raise a `ValueError` if it fails, or one is not finite."""
    with _run_errors(name):
        results = run_signature(interpreter, name, inputs)
    for key, x in results.items():
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            raise ValueError(
                f"The output {key!r} of the signature {name!r} is not finite in LiteRT, so no file "
                "was written."
            )
    return results


@contextlib.contextmanager
def _run_errors(name):
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"LiteRT cannot run the signature {name!r} of the model. Received: {error}"
        ) from error


def golden_outputs(interpreter, examples, names):
    """Return the inputs and outputs of the first, short run of each signature of a file."""
    runs = {}
    for name, inputs, _ in examples.run(examples.shapes[0]):
        if name in names and name not in runs:
            runs[name] = inputs, run_checked(interpreter, name, inputs)
    return runs


def measure_errors(interpreter, examples, names):
    """Return the errors of a quantised file, a dict by signature and output.

    The error of numbers is the greatest one, divided by the greatest magnitude of the output; that
    of ids is the share of those that differ.
    """
    errors = {name: {} for name in names}
    for shape in examples.shapes:
        for name, inputs, outputs in examples.run(shape):
            if name in names:
                results = run_checked(interpreter, name, inputs)
                for key, expected in outputs.items():
                    worst = max(errors[name].get(key, 0.0), _error(expected, results[key]))
                    errors[name][key] = worst
    return errors


def _error(expected, result):
    if expected.dtype.kind != "f":
        return float(np.mean(expected != result))
    scale = np.abs(expected).max(initial=1e-6)
    return float(np.abs(expected.astype("float64") - result).max(initial=0.0) / scale)
