"""Compiled decoding: one function for each model, kind of strategy and bucket of lengths."""

import threading
import weakref

import keras
import numpy as np
from keras import ops, tree

from keras_attn.backend.operations import is_symbolic, read
from keras_attn.generation.loop import (
    DecodingOptions,
    decode,
    kind_of,
    numbers_of,
    weights_of,
    with_numbers,
)
from keras_attn.layers.lora import num_changes

# Compiled functions that are kept for each model.
MAX_FUNCTIONS = 16

_lock = threading.Lock()
# model -> {what is compiled: the function}, the least recently used first
_functions_of = weakref.WeakKeyDictionary()


def run_compiled(model, ids, lengths, strategy, options, jit_compile=False):
    """Decode int32 ids (B, S) of rows of `lengths` (B,), or None, with a compiled function.

    The numbers of the strategy and of the `DecodingOptions` are inputs of the function. They are
    constants of it where a graph is built, or for a strategy without `numbers`. Where XLA compiles,
    for shapes that are known, arrays have a size of a `bucket`.

    On JAX the weights are inputs too: a model that does not name them, a strategy without `numbers`
    and a call inside a trace are decoded in place, as all are on torch.
    """
    backend = keras.backend.backend()
    if jit_compile and backend != "tensorflow":
        raise ValueError(
            f"`jit_compile=True` needs the TensorFlow backend. Received: backend={backend!r}."
        )
    numbers = None if is_symbolic(ids) or is_symbolic(lengths) else numbers_of(strategy)
    options = options._replace(grows=backend == "tensorflow" and not jit_compile)
    if backend != "tensorflow" and not (
        backend == "jax"
        and numbers is not None
        and all(hasattr(each, "weights") for each in (model, *strategy.models))
    ):
        arrays = [None if x is None else ops.convert_to_tensor(x) for x in (ids, lengths)]
        return decode(model, arrays[0], strategy, options, arrays[1])
    if numbers is None:
        inputs = [x for x in (ids, lengths) if x is not None]
        return _function(model, strategy, options, jit_compile, inputs)(*inputs)
    max_length, bound = options.max_length, None
    if not options.grows:
        bound = bucket(max_length, model.max_length)
        most = model.max_length if model.reads_prompt else model.max_source_length
        missing = bucket(ids.shape[1], most) - ids.shape[1]
        ids = np.pad(ids, [[0, 0], [0, missing]])  # behind the ends of the rows
    # One array: each input of a function takes some 20 microseconds.
    integers = np.array([max_length, options.bos_id, *options.eos_ids], "int32")
    values = {"integers": integers, "numbers": numbers}
    noise = strategy.noise(bound or max_length, len(ids))
    if noise is not None:
        values["noise"] = noise
    inputs = ids, lengths, values
    kind = DecodingOptions(None, None, (None,) * len(options.eos_ids), options.grows, bound=bound)
    ids, scores = _function(model, kind_of(strategy), kind, jit_compile, inputs)(*inputs)
    if ids.shape[1] != max_length:
        # JAX would compile a slice for each length; weights may be those of a trace.
        ids = ids if is_symbolic(ids) else ops.convert_to_numpy(ids)
        ids = ops.convert_to_tensor(ids[:, :max_length], "int32")
    return ids, scores


def bucket(length, most=None):
    """Return the least of 6, 8, 12, 16, 24, 32, 48, ... that is at least `length`, or `most`."""
    power = 1 << max(length - 1, 7).bit_length()
    size = power * 3 // 4 if length <= power * 3 // 4 else power
    return size if most is None else min(size, most)


def _function(model, strategy, options, jit_compile, inputs):
    """Return a function of `inputs`, compiled at most once for the same other arguments."""
    changes = tuple(num_changes(each) for each in (model, *strategy.models))
    key = strategy, options, jit_compile, len(inputs), changes
    with _lock:
        functions = _functions_of.setdefault(model, {})
        function = functions.pop(key, None)
        if function is None:
            function = _compile(model, strategy, options, jit_compile, inputs)
        functions[key] = function  # the last one is the most recently used
        if len(functions) > MAX_FUNCTIONS:
            del functions[next(iter(functions))]
    return function


def _compile(model, strategy, options, jit_compile, inputs):
    # The functions live as long as the model, so they must not keep it alive.
    model_ref = weakref.ref(model)

    def run(ids, lengths=None, values=None):
        if values is None:
            return decode(model_ref(), ids, strategy, options, lengths)
        integers = [values["integers"][n] for n in range(2 + len(options.eos_ids))]
        max_length, bos_id, *eos_ids = integers
        own = {"max_length": max_length, "bos_id": bos_id, "eos_ids": eos_ids}
        own_options = options._replace(**own, noise=values.get("noise"))
        numbered = with_numbers(strategy, values["numbers"])
        return decode(model_ref(), ids, numbered, own_options, lengths)

    if keras.backend.backend() == "jax":
        return _compile_on_jax(run, lambda: weights_of(model_ref(), strategy))
    import tensorflow as tf

    # Of XLA a function of known shapes.
    signature = None if jit_compile else tree.map_structure(_spec, inputs)
    compiled = tf.function(run, signature, autograph=False, jit_compile=jit_compile)
    if jit_compile or not strategy.runs_in_one_thread:
        return compiled

    def run_in_one_thread(*inputs):
        # A step is hundreds of small operations in a row, and handing each to a pool of threads
        # takes as long as running it.
        with tf.experimental.function_executor_type("SINGLE_THREADED_EXECUTOR"):
            return compiled(*inputs)

    return run_in_one_thread


def _spec(x):
    """Return the specification of a tensor whose first two axes, of rows and tokens, may change."""
    import tensorflow as tf

    return tf.TensorSpec([None] * len(x.shape[:2]) + list(x.shape[2:]), x.dtype)


def _compile_on_jax(run, weights):
    """Return a function that JAX compiles with the values of `weights()` as inputs."""
    import jax

    @jax.jit
    def compiled(values, *inputs):
        with keras.StatelessScope(zip(weights(), values, strict=True)):
            return run(*inputs)

    return lambda *inputs: compiled([read(weight) for weight in weights()], *inputs)
