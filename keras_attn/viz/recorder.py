"""Arrays that the layers of a model hand over while it runs, in calls and in `predict`."""

import contextlib
import functools
import itertools
import warnings

import keras
import numpy as np

from keras_attn.backend.host_calls import wait_for_host_calls
from keras_attn.compat.keras_layers import flatten_layers
from keras_attn.layers.layer_paths import layers_by_path


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
                "Nothing was captured: no layer ran inside the scope, or in a function that was "
                "compiled before it, as those of `generate`, `evaluate` and `fit` may be.",
                stacklevel=4,
            )

    def close(self):
        """Make the calls that are not made yet, and keep no more."""
        wait_for_host_calls()
        self.is_open = False

    @contextlib.contextmanager
    def in_predict(self, model):
        """Let `predict` of a model compile a function that hands arrays over."""
        if not isinstance(model, keras.Model):
            yield
            return
        before = model.predict_function
        model.make_predict_function(force=True)
        function = _as_in_scopes(before, model.predict_function)
        model.predict_function = functools.partial(self.run_batch, model, function)
        try:
            yield
        finally:
            model.predict_function = before

    def run_batch(self, model, function, *arguments):
        """Run a batch of `predict`, and add the rows of its arrays to those before."""
        earlier, outputs = dict(self.found), None
        self.found.clear()
        self.runs.clear()
        try:
            outputs = function(*arguments)
            wait_for_host_calls()
            in_order = sorted(self.runs, key=lambda path: self.runs[path][0][0])
            joined = _join_rows(earlier, {path: self.found[path] for path in in_order})
        except Exception:
            if keras.backend.backend() == "jax":
                _give_weights_back(model, arguments[0] if outputs is None else outputs[1])
            if self.error is None:
                raise
            raise self.error from None  # without the trace of the graph around it
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
        hidden = [(layer.path, layer) for layer in flatten_layers(model)]  # in private attributes
        for path, layer in [*parts, *hidden]:
            if isinstance(layer, kinds) and id(layer) not in found:
                found[id(layer)] = _unlike(found.values(), path or layer.name)
    if not found:
        raise ValueError(
            f"`model` must hold {wanted}; a model that makes its layers when it is built must be "
            f"built. Received: model={model!r}."
        )
    return found


def _unlike(paths, path):
    """Return a path, with a number if there is the same one; layers in a dict may share a name."""
    names = itertools.chain([path], (f"{path} ({number})" for number in itertools.count(2)))
    return next(name for name in names if name not in paths)


def _as_in_scopes(before, function):
    """Return the function of `predict` as the scopes around this one, if any, run it."""
    if not isinstance(getattr(getattr(before, "func", None), "__self__", None), Recorder):
        return function
    model, inner = before.args
    return functools.partial(before.func, model, _as_in_scopes(inner, function))


def _give_weights_back(model, state):
    """Assign the weights that `predict` on JAX holds while it runs, which an error would lose."""
    weights = [*model.trainable_variables, *model.non_trainable_variables]
    for weight, value in zip(weights, itertools.chain(*state), strict=True):
        if not value.is_deleted():  # by the function that was given it
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


def _join(*rows):
    first, last = rows
    if first.shape[1:] != last.shape[1:]:
        raise ValueError(
            "Batches of `predict` must have one length inside a scope: pad them, or use a scope "
            f"for each length. Received: arrays of shapes {first.shape} and {last.shape}."
        )
    return np.concatenate(rows)


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
