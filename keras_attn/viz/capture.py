"""Attention scores of every layer of a model, from outside."""

import contextlib
import functools
import math

from keras_attn.attention import captures
from keras_attn.backend.operations import call_on_host
from keras_attn.layers import MultiHeadAttention
from keras_attn.ops.checks import check_sizes
from keras_attn.ops.shapes import size, sizes
from keras_attn.viz.recorder import Recorder, paths_of


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
    recorder = _Recorder(model, max_bytes)
    outer = captures.thread.record
    captures.thread.record = functools.partial(recorder.record, outer)
    try:
        with recorder.in_predict(model):
            yield recorder.found
            recorder.check_found()
    finally:
        captures.thread.record = outer
        recorder.close()


class _Recorder(Recorder):
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
