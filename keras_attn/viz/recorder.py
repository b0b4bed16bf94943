"""Arrays that the layers of a model hand over while it runs, in calls and in `predict`."""

import contextlib
import functools
import itertools

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
        model.predict_function = functools.partial(self._run_batch, model.predict_function)
        try:
            yield
        finally:
            model.predict_function = before

    def _run_batch(self, function, *arguments):
        """Run a batch of `predict`, and add the rows of its arrays to those before."""
        earlier = dict(self.found)
        self.found.clear()
        self.runs.clear()
        try:
            outputs = function(*arguments)
            wait_for_host_calls()
        except Exception:
            if self.error is None:
                raise
            raise self.error from None  # without the trace of the graph around it
        in_order = sorted(self.runs, key=lambda path: self.runs[path][0][0])
        joined = _join_rows(earlier, {path: self.found[path] for path in in_order})
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
            if isinstance(layer, kinds):
                found.setdefault(id(layer), path)
    if not found:
        raise ValueError(
            f"`model` must hold {wanted}; a model that makes its layers when it is built must be "
            f"built. Received: model={model!r}."
        )
    return found


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
