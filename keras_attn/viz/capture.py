"""Capture, from outside, of what layers of a model compute: the attention scores of each layer."""

import contextlib
import functools
import itertools
import math
import warnings

import keras
import numpy as np

from keras_attn.attention import captures
from keras_attn.backend.operations import call_on_host, wait_for_host_calls
from keras_attn.compat.keras_layers import flatten_layers
from keras_attn.layers import MultiHeadAttention
from keras_attn.layers.adapted_projections import layers_by_path
from keras_attn.ops.checks import check_sizes
from keras_attn.ops.shapes import size, sizes


@contextlib.contextmanager
def capture_attention(model, max_bytes=2**30):
    """Collect the scores of every attention layer while a model runs, of every head.

        with capture_attention(model) as scores:
            model.predict(inputs)
        scores["encoder/blocks/0/attention"]  # (B, N, T, S)

    Scores are the weights before dropout: rows sum to 1, to less with `sinks`, or to 0 where
    nothing may be attended. They do not change the model's outputs: a layer gives those that its
    output is computed from. Under a plan that keeps no scores, such as that of a sparse pattern,
    the matrix that the plan stands for is computed beside it, in O(T S N H) time and O(N T S)
    memory. Other scores are free but for their copies.

    Calls of the model and `predict` are captured. `predict` runs compiled, as it does outside: its
    function is compiled anew inside the scope, with steps that hand the scores over, and the one
    from before is back after it. Any other function is captured if it is traced inside the scope:
    one of your own, or those of `generate`, `evaluate` and `fit`, which keep what they have traced.
    If no layer ran, the scope ends with a warning. XLA on TensorFlow cannot hand anything over; on
    JAX it may round a compiled function otherwise. Capture calls without gradients, since `remat`
    and `Reversible` run layers again for them, and on one device.

    Args:
        model: a model or layer that holds layers of `keras_attn.layers`, in attributes, lists, or
            the graph of Keras's functional API.
        max_bytes: int. Most bytes that all scores of the scope may take, 4 B N T S a layer, or 8
            under a float64 policy. It is checked before a matrix is computed.

    Returns:
        A context manager that gives a dict, filled in the order of computation, from the path of a
        layer, such as "decoder/blocks/0/cross_attention", to the scores (B, N, T, S), a NumPy array
        of at least float32. A layer that runs more than once, in the steps of a `Recurrent` or in
        several calls, has a list, one array a run. The rows of the batches of `predict` are joined:
        they must have one length, `predict` must run one batch at a time, as by default, and the
        model is not called in the same scope. A step that one batch took and another did not has
        zeros in the rows of the other.

    Raises:
        ValueError: if the model has no attention layer; inside the scope, if the scores would take
            more than `max_bytes`, come from a function that XLA compiles on TensorFlow, or batches
            of `predict` have several lengths.

    Example:
        >>> import keras_attn, numpy as np
        >>> model = keras_attn.models.gpt(100, num_layers=1, num_heads=2, hidden_dim=8)
        >>> with keras_attn.viz.capture_attention(model) as scores:
        ...     logits = model(np.array([[5, 7, 9]]))
        >>> {path: array.shape for path, array in scores.items()}
        {'depth/blocks/0/attention': (1, 2, 3, 3)}
    """
    check_sizes(max_bytes=max_bytes)
    recorder = _ScoreRecorder(model, max_bytes)
    outer = captures.record
    captures.record = functools.partial(recorder.record, outer)
    try:
        with recorder.in_predict(model):
            yield recorder.captured
            recorder.check_captured()
    finally:
        captures.record = outer
        recorder.close()


class Recorder:
    """The runs of a scope by the path of their layer: nested arrays with the batch's rows first.

    Attributes:
        captured: dict from a path to the arrays of its run, or to the list of those of several.
        paths: dict from the id of a layer to its path.
        error: the exception that a call raised, which a graph would wrap; None for none.
    """

    def __init__(self, paths):
        self.paths = paths
        self.captured, self.error, self.is_open = {}, None, True
        # Runs by path, each with the number of its place in the program. A graph runs what shares
        # no tensor in any order, and the body of a loop many times.
        self.runs, self.places = {}, itertools.count(1)

    def keep(self, path, place, arrays):
        if self.is_open:
            runs = self.runs.setdefault(path, [])
            runs.append((place, arrays))
            runs.sort(key=lambda run: run[0])
            self.captured[path] = _as_entry([arrays for _, arrays in runs])

    def check_captured(self):
        """Warn if no layer has run, after a scope without an error."""
        wait_for_host_calls()
        if not self.captured:
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
        earlier, outputs, self.error = dict(self.captured), None, None
        self.captured.clear()
        self.runs.clear()
        try:
            outputs = function(*arguments)
            wait_for_host_calls()
            in_order = sorted(self.runs, key=lambda path: self.runs[path][0][0])
            joined = _join_rows(earlier, {path: self.captured[path] for path in in_order})
        except BaseException:
            joined = earlier
            if keras.backend.backend() == "jax":
                _give_weights_back(model, arguments[0] if outputs is None else outputs[1])
            if self.error is None:
                raise
            raise self.error from None  # without the trace of the graph around it
        finally:
            self.captured.clear()
            self.captured |= joined
        self.runs = {path: [(0, x) for x in _as_list(runs)] for path, runs in joined.items()}
        return outputs


class _ScoreRecorder(Recorder):
    """The scores of a scope, and what is left of its bytes."""

    def __init__(self, model, max_bytes):
        message = "an attention layer of `keras_attn.layers`"
        super().__init__(paths_of(model, MultiHeadAttention, message))
        self.max_bytes, self.num_bytes = max_bytes, 0

    def record(self, outer, layer, inputs, compute):
        """Keep the scores of a layer's call; pass the call on to the scope outside, if any."""
        if outer is not None:
            outer(layer, inputs, compute)
        path = self.paths.get(id(layer))
        if path is None:
            return
        shape = [*sizes(inputs.query)[:3], size(inputs.key, 2)]
        itemsize = 8 if layer.compute_dtype == "float64" else 4
        scores = call_on_host(functools.partial(self.check, path, itemsize), shape, then=compute)
        call_on_host(functools.partial(self.keep, path, next(self.places)), scores)

    def check(self, path, itemsize, shape):
        """Refuse scores of a shape that do not fit beside those that are kept."""
        more = itemsize * math.prod(int(length) for length in shape)
        if self.is_open and self.num_bytes + more > self.max_bytes:
            by = " x ".join(str(length) for length in shape)
            self.error = ValueError(
                f"`max_bytes` must hold all scores: those of {path}, {by}, take {more} bytes, "
                f"after {self.num_bytes} of others. Capture fewer rows or shorter ones, or allow "
                f"more. Received: max_bytes={self.max_bytes}."
            )
            raise self.error

    def keep(self, path, place, scores):
        if self.is_open:
            self.check(path, scores.itemsize, scores.shape)  # a graph may be ahead of its calls
            self.num_bytes += scores.nbytes
            super().keep(path, place, scores)


def paths_of(model, kinds, wanted):
    """Return the path of each layer of some classes in a model, by the layer's id.

    `wanted` says which layers they are, in the error of a model that has none.
    """
    paths = {}
    if isinstance(model, keras.layers.Layer):
        parts = [("/".join(path) or layer.name, layer) for path, layer in layers_by_path(model)]
        # In private attributes and dicts; a layer that is not built has no path.
        hidden = [(layer.path or layer.name, layer) for layer in flatten_layers(model)]
        for path, layer in [*parts, *hidden]:
            if isinstance(layer, kinds) and id(layer) not in paths:
                paths[id(layer)] = _unique(path, paths.values())
    if not paths:
        raise ValueError(
            f"`model` must hold {wanted}; a model that makes its layers when it is built must be "
            f"built. Received: model={model!r}."
        )
    return paths


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
        batches = [_as_list(part[path]) for part in (earlier, later) if path in part]
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
    """Return `count` runs, of which those after `runs` are zeros."""
    blank = keras.tree.map_structure(np.zeros_like, runs[0])
    return [*runs, *[blank] * (count - len(runs))]


def _as_list(runs):
    """Return the arrays of all runs of a layer as a list."""
    return runs if isinstance(runs, list) else [runs]


def _as_entry(runs):
    """Return the arrays of one run, or the list of several."""
    return runs[0] if len(runs) == 1 else runs
