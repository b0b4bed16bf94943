"""Arrays that the layers of a model hand over while it runs, in calls and in `predict`."""

import contextlib
import itertools
import warnings

import keras
import numpy as np

from keras_attn.backend.operations import wait_for_host_calls
from keras_attn.compat.keras_layers import flatten_layers
from keras_attn.layers.adapted_projections import layers_by_path


class Recorder:
    """The runs of a scope by the path of their layer: nested arrays with the batch's rows first.

    Attributes:
        found: dict from a path to the arrays of its run, or to the list of those of several.
        paths: dict from the id of a layer to its path.
        error: the exception that a call raised, which a graph would wrap; None for none.
    """

    def __init__(self, paths):
        self.paths = paths
        self.found, self.error, self.is_open = {}, None, True
        # Runs by path, each with the number of its place in the program. A graph runs what shares
        # no tensor in any order, and the body of a loop many times.
        self.runs, self.places = {}, itertools.count(1)

    def keep(self, path, place, arrays):
        if self.is_open:
            runs = self.runs.setdefault(path, [])
            runs.append((place, arrays))
            runs.sort(key=lambda run: run[0])
            self.found[path] = _as_entry([arrays for _, arrays in runs])

    def check_found(self):
        """Warn if no layer has run, after a scope without an error."""
        wait_for_host_calls()
        if not self.found:
            warnings.warn(
                "Nothing was captured: no layer ran inside the scope, or the function that ran was "
                "compiled before it, as `generate`, `evaluate` and `fit` keep theirs.",
                stacklevel=4,
            )

    def close(self):
        """Keep no more: calls that are not made yet find the scope closed."""
        self.is_open = False
        wait_for_host_calls()

    @contextlib.contextmanager
    def in_predict(self, model):
        """Let `predict` of a model compile a function that hands arrays over."""
        if not isinstance(model, keras.Model):
            yield
            return
        before = model.predict_function
        model.make_predict_function(force=True)
        function = _in_scopes(before, model.predict_function)
        model.predict_function = _CapturedPredict(self, model, function)
        try:
            yield
        finally:
            model.predict_function = before

    def run_batch(self, model, function, *arguments):
        """Run a batch of `predict`, and add the rows of its arrays to those before."""
        earlier, outputs, self.error = dict(self.found), None, None
        self.found.clear()
        self.runs.clear()
        try:
            outputs = function(*arguments)
            wait_for_host_calls()
            in_order = sorted(self.runs, key=lambda path: self.runs[path][0][0])
            joined = _join_rows(earlier, {path: self.found[path] for path in in_order})
        except BaseException:
            joined = earlier
            if keras.backend.backend() == "jax":
                _give_weights_back(model, arguments[0] if outputs is None else outputs[1])
            if self.error is None:
                raise
            raise self.error from None  # without the trace of the graph around it
        finally:
            self.found.clear()
            self.found |= joined
        self.runs = {path: [(0, x) for x in _as_list(runs)] for path, runs in joined.items()}
        return outputs


def paths_of(model, kinds, wanted):
    """Return the path of each layer of some classes in a model, by the layer's id.

    `wanted` says which layers they are, in the error of a model that has none.
    """
    found = {}
    if isinstance(model, keras.layers.Layer):
        parts = [("/".join(path) or layer.name, layer) for path, layer in layers_by_path(model)]
        # In private attributes and dicts; a layer that is not built has no path.
        hidden = [(layer.path or layer.name, layer) for layer in flatten_layers(model)]
        for path, layer in [*parts, *hidden]:
            if isinstance(layer, kinds) and id(layer) not in found:
                found[id(layer)] = _unique(path, found.values())
    if not found:
        raise ValueError(
            f"`model` must hold {wanted}; a model that makes its layers when it is built must be "
            f"built. Received: model={model!r}."
        )
    return found


def _unique(path, paths):
    """Return a path, with a number if another layer has it, as those of one name in a dict."""
    names = itertools.chain([path], (f"{path} ({number})" for number in itertools.count(2)))
    return next(name for name in names if name not in paths)


class _CapturedPredict:
    """The function by which `predict` runs a batch, inside of a scope."""

    def __init__(self, recorder, model, function):
        self.recorder, self.model, self.function = recorder, model, function

    def __call__(self, *arguments):
        return self.recorder.run_batch(self.model, self.function, *arguments)


def _in_scopes(before, function):
    """Return a new function of `predict` inside the open scopes that run `before`, the last one."""
    if not isinstance(before, _CapturedPredict):
        return function
    inner = _in_scopes(before.function, function)
    return _CapturedPredict(before.recorder, before.model, inner)


def _give_weights_back(model, state):
    """Assign a model its weights, which `predict` on JAX takes out of it while it runs."""
    weights = [*model.trainable_variables, *model.non_trainable_variables]
    for weight, value in zip(weights, itertools.chain(*state), strict=True):
        if not value.is_deleted():  # donated to the compiled function
            weight.assign(value)


def _join_rows(earlier, later):
    """Return the runs by path with the rows of an earlier batch before those of a later one."""
    if not earlier:
        return later
    joined = {}
    for path in {**earlier, **later}:
        batches = [_as_list(found[path]) for found in (earlier, later) if path in found]
        count = max(len(runs) for runs in batches)
        runs = zip(*(_with_blanks(runs, count) for runs in batches), strict=True)
        joined[path] = _as_entry([keras.tree.map_structure(_join, *batches) for batches in runs])
    return joined


def _join(first, last):
    if first.shape[1:] != last.shape[1:]:
        raise ValueError(
            "All rows of a scope with `predict` must have one length: pad them, or use a scope for "
            f"each length. Received: arrays of shapes {first.shape} and {last.shape}."
        )
    return np.concatenate([first, last])


def _with_blanks(runs, count):
    """Return `count` runs, of which those after the given ones are zeros."""
    blank = keras.tree.map_structure(np.zeros_like, runs[0])
    return [*runs, *[blank] * (count - len(runs))]


def _as_list(runs):
    """Return the arrays of all runs of a layer as a list."""
    return runs if isinstance(runs, list) else [runs]


def _as_entry(runs):
    """Return the arrays of one run, or the list of several."""
    return runs[0] if len(runs) == 1 else runs
