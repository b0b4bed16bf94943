"""Runs of all signatures of a LiteRT file on examples, beside the graph that was converted."""

import numpy as np
import tensorflow as tf

from keras_attn.export._litert.files import run_signature
from keras_attn.export.example_inputs import example_input
from keras_attn.export.golden_outputs import outputs_match

# Relative to the greatest magnitude of an output.
TOLERANCE = 1e-5
# A tie within the rounding of float32 turns an id for one seed, a wrong graph for all of them.
SEEDS = range(3)
# Tokens of the steps after a prompt: of one, and of two.
STEPS = (1, 2)


class Examples:
    """Example inputs of the signatures of a model, and the outputs of its graph for them.

    A signature reads what those before it gave: a step the cache of the prompt, then that of the
    first step. So each is compared alone, and errors do not add up.

    Args:
        signatures: `Signatures`.
        longest: int. Length of the longer rows, if the model has the positions; the shorter rows
            have three.
    """

    def __init__(self, signatures, longest):
        self._signatures = signatures
        if signatures.max_length is not None:
            longest = max(1, min(longest, signatures.max_length - sum(STEPS)))
        self.shapes = [(1, min(3, longest)), (3, longest)]

    def run(self, shape, seed=0):
        """Yield (signature, inputs, outputs), dicts of arrays, of the graph for a shape (B, T)."""
        random, state = np.random.default_rng(seed), {}
        num_tokens = self._signatures.num_tokens
        for name, function in self._signatures.functions.items():
            specs = function.input_signature
            concrete = function.get_concrete_function()
            for length in self._lengths(specs, state, shape[1]):
                inputs = {
                    spec.name: state[spec.name]
                    if spec.name in state
                    else example_input(spec, shape[0], length, num_tokens, random)
                    for spec in specs
                }
                outputs = concrete(*map(tf.constant, inputs.values()))
                outputs = {key: x.numpy() for key, x in outputs.items()}
                yield name, inputs, outputs
                state |= outputs

    def _lengths(self, specs, state, length):
        """Return the lengths of the rows that a signature reads, in one call after the other."""
        if not any(spec.name in state for spec in specs):
            return [length]
        if any(spec.name.endswith("lengths") for spec in specs):
            return [length] * len(STEPS)
        most = self._signatures.max_length
        ends = np.cumsum(STEPS) + length
        return [n for n, end in zip(STEPS, ends, strict=True) if most is None or end <= most]


def check_outputs(interpreter, examples, names):
    """Raise a `ValueError` unless the signatures `names` of a file give the graph's outputs.

    Numbers must be equal to 1e-5 of the greatest in all rows whose integers are equal. Integers may
    differ in a run, where two choices are as likely, if they are equal in one of two others.
    """
    for shape in examples.shapes:
        for seed in SEEDS:
            turned = _turned_integers(interpreter, examples.run(shape, seed), names)
            if not turned:
                break
        else:
            raise _difference(*turned[0])


def _turned_integers(interpreter, runs, names):
    """Return pairs of a signature and an output whose integers differ; raise for other numbers."""
    turned = []
    for name, inputs, outputs in runs:
        if name not in names:
            continue
        results = run_checked(interpreter, name, inputs)
        integers = [key for key, x in outputs.items() if x.dtype.kind != "f"]
        others = [key for key in integers if not outputs_match(outputs[key], results[key])]
        turned += [(name, key) for key in others]
        is_same = np.all([_same_rows(outputs[key], results[key]) for key in others], axis=0)
        for key in set(outputs) - set(integers):
            expected, result = outputs[key], results[key]
            if others and len(expected) == len(is_same):
                expected, result = expected[is_same], result[is_same]
            if not outputs_match(expected, result, TOLERANCE):
                raise _difference(name, key)
    return turned


def _same_rows(expected, result):
    """Return a mask (B,), True for the rows of integers that are equal."""
    if expected.shape != result.shape:
        return np.zeros(len(expected), bool)
    return (expected == result).reshape(len(expected), -1).all(axis=1)


def _difference(name, key):
    return ValueError(
        f"The output {key!r} of the signature {name!r} in LiteRT differs from the model's, so no "
        "file was written."
    )


def run_checked(interpreter, name, inputs):
    """Return the outputs of a signature; raise a `ValueError` if it fails, or one is not finite."""
    try:
        results = run_signature(interpreter, name, inputs)
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"LiteRT cannot run the signature {name!r} of the model. Received: {error}"
        ) from error
    for key, x in results.items():
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            raise ValueError(
                f"The output {key!r} of the signature {name!r} is not finite in LiteRT, so no file "
                "was written."
            )
    return results


def record_examples(interpreter, examples, names):
    """Return the inputs and outputs of the first, short run of each signature of a file."""
    records = {}
    for name, inputs, _ in examples.run(examples.shapes[0]):
        if name in names and name not in records:
            records[name] = inputs, run_checked(interpreter, name, inputs)
    return records


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
    greatest = np.abs(expected).max(initial=1e-6)
    return float(np.abs(expected.astype("float64") - result).max(initial=0.0) / greatest)
