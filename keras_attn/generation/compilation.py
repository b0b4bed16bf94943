"""Compiled decoding: one function for each model, kind of strategy and bucket of lengths."""

import functools
import threading
import weakref
from typing import NamedTuple

import keras
import numpy as np
from keras import ops, tree

from keras_attn.backend.loop_invariants import loop_scope
from keras_attn.backend.operations import is_symbolic, read
from keras_attn.compat.keras_layers import flatten_layers
from keras_attn.generation.loop import (
    DecodingOptions,
    decode,
    dynamic_values,
    static_kind,
    weights_of,
    with_values,
)
from keras_attn.layers.lora import num_changes
from keras_attn.models.model import Model

# Compiled functions that are kept for each model.
MAX_FUNCTIONS = 16

# Layers of Keras that read each token alone.
_TOKENWISE = (
    keras.layers.Activation,
    keras.layers.Dense,
    keras.layers.Dropout,
    keras.layers.EinsumDense,
    keras.layers.Embedding,
    keras.layers.InputLayer,
    keras.layers.LayerNormalization,
    keras.layers.RMSNormalization,
)

_lock = threading.Lock()
# model -> {what is compiled: the function}, the least recently used first
_functions_of = weakref.WeakKeyDictionary()
# model of ours -> True if all its layers are ours or tokenwise
_has_known_layers = weakref.WeakKeyDictionary()


def run_compiled(model, ids, lengths, strategy, options, jit_compile=False):
    """Decode int32 ids (B, S) of rows of `lengths` (B,), or None, with a compiled function."""
    tasks, rows = prepare(model, ids, lengths, strategy, options, jit_compile)
    ids, scores = tasks.run(decode, *rows)
    if ids.shape[1] not in (None, options.max_length):  # it is that of a bucket
        # JAX would compile a slice for each length; weights may be those of a trace.
        ids = ids if is_symbolic(ids) else ops.convert_to_numpy(ids)
        ids = ops.convert_to_tensor(ids[:, : options.max_length], "int32")
    return ids, scores


def prepare(model, ids, lengths, strategy, options, jit_compile=False):
    """Return the tasks of a model, and the rows that they read: ids (B, S), and lengths if any.

    The dynamic values of the strategy and the numbers of the `DecodingOptions` are inputs of what
    is compiled. They are constants where a graph is built, and for a strategy without `dynamic`.
    Noise is drawn here, once for all tasks, but where a graph is built. Where XLA compiles, for
    shapes that are known, all that is generated has the size of a `bucket`, and so have the rows of
    models that support padding.

    On JAX the weights are inputs too: a model that does not name them, a strategy without `dynamic`
    and a call inside a trace are decoded in place, as all are on torch.
    """
    backend = keras.backend.backend()
    if jit_compile and backend != "tensorflow":
        raise ValueError(
            f"`jit_compile=True` needs the TensorFlow backend. Received: backend={backend!r}."
        )
    is_traced = is_symbolic(ids) or is_symbolic(lengths)
    values = None if is_traced else dynamic_values(strategy)
    is_compiled = backend == "tensorflow" or (
        backend == "jax" and values is not None and _have_weights(model, *strategy.models)
    )
    options = options._replace(grows=backend == "tensorflow" and not jit_compile)
    if is_compiled and values is not None and not options.grows:
        positions = model.max_length
        options = options._replace(capacity=bucket(options.max_length, positions))
        if all(map(_supports_padding, (model, *strategy.models))):
            most = positions if model.reads_prompt else model.max_source_length
            missing = bucket(ids.shape[1], most) - ids.shape[1]
            ids = np.pad(ids, [[0, 0], [0, missing]])  # behind the ends of the rows
    if not is_traced:
        options = options.with_noise_of(strategy, len(ids))
    rows = [x for x in (ids, lengths) if x is not None]
    if not is_compiled:
        return InPlaceTasks(model, strategy, options), [*map(ops.convert_to_tensor, rows)]
    if values is not None:
        strategy = static_kind(strategy)
    return CompiledTasks(model, strategy, options, jit_compile, values), rows


def _have_weights(*models):
    return all(hasattr(model, "weights") for model in models)


def _supports_padding(model):
    """Return True if padding behind the tokens of a row changes none of the row's outputs.

    A model of a user's own, or one of ours with a layer of theirs, may not read `padding_mask`, and
    a convolution of Keras reads none.
    """
    declared = getattr(model, "supports_padding", None)
    if declared is not None or not isinstance(model, Model):
        return bool(declared)
    with _lock:
        if model not in _has_known_layers:
            _has_known_layers[model] = all(
                type(layer) in _TOKENWISE or type(layer).__module__.startswith("keras_attn.")
                for layer in flatten_layers(model)
            )
        return _has_known_layers[model]


class InPlaceTasks(NamedTuple):
    """Tasks that are computed where they are called: functions of a model, a strategy and options.

    A task is called as `task(model, strategy, options, *inputs)`.
    """

    model: object
    strategy: object
    options: object

    def run(self, task, *inputs):
        """Return the outputs of a task."""
        return task(*self, *inputs)

    def function(self, task, inputs, signature=None, donates=False):
        """Return a function of the inputs of a task."""
        return functools.partial(task, *self)

    def output_specs(self, task, *inputs):
        """Return None: the outputs may have any shapes."""
        return None


class DynamicInputs(NamedTuple):
    """Inputs of a compiled function that follow those of its task; None where there are none."""

    integers: object  # int32 (2 + E,), of the options
    values: object  # float32 (N,), of the strategy
    noise: object  # (capacity, B, ...)


class CompiledTasks(NamedTuple):
    """Tasks that are compiled once for a model and a kind of strategy and options.

    A task is a function of a module, called as `task(model, strategy, options, *inputs)`. JAX
    compiles it again for other shapes of the inputs, which come from buckets; TensorFlow once.
    """

    model: object
    strategy: object  # a `static_kind`, if its values are inputs
    options: DecodingOptions  # its noise, and with the values its numbers, are inputs
    jit_compile: bool
    values: object = None  # float32 (N,), the dynamic ones of the strategy

    def run(self, task, *inputs):
        """Return the outputs of a task for nested tensors and arrays; None stays None."""
        return self.function(task, inputs)(*inputs)

    def function(self, task, inputs, signature=None, donates=False):
        """Return the compiled function of a task, for inputs nested as these.

        On JAX it has the weights as they are now.

        Args:
            signature: of the inputs on TensorFlow, nested as these, and always the same for a task;
                by default that of tensors whose first two axes, of rows and tokens, may change.
            donates: bool. If True, the tensors of the last input are overwritten where the backend
                can do so; they must not be used again.
        """
        compiled = self._compiled(task, inputs, signature, donates)
        if keras.backend.backend() == "jax":
            compiled = compiled()  # it reads the weights
        dynamic = _tensors(self._dynamic_inputs())
        return lambda *inputs: compiled(*_tensors(inputs), *dynamic)

    def output_specs(self, task, *inputs):
        """Return the specifications of a task's outputs on TensorFlow; None on other backends."""
        if keras.backend.backend() != "tensorflow":
            return None
        import tensorflow as tf

        compiled = self._compiled(task, inputs)
        return tree.map_structure(
            lambda x: None if x is None else tf.TensorSpec(x.shape, x.dtype),
            compiled.get_concrete_function().structured_outputs,
        )

    def _dynamic_inputs(self):
        options, integers, values = self.options, None, self.values
        if values is not None:
            # One array: each input of a function takes some 20 microseconds.
            integers = [options.max_length, options.bos_id, *options.eos_ids]
            integers = np.array(integers, "int32")
            values = values if len(values) else None
        return DynamicInputs(integers, values, options.noise)

    def _compiled(self, task, inputs, signature=None, donates=False):
        """Return the function of the tensors of the inputs and numbers, made at most once."""
        model, strategy, options = self.model, self.strategy, self.options
        changes = tuple(num_changes(each) for each in (model, *strategy.models))
        kind = options._replace(noise=options.noise is not None)
        if self.values is not None:  # the arguments of `generate` are all that differs
            capacity = None if options.grows else options.capacity
            kind = len(options.eos_ids), options.grows, capacity
        key = task, strategy, kind, self.jit_compile, len(inputs), changes
        with _lock:
            # Those of an export read its own variables.
            functions = _functions_of.setdefault(loop_scope.prepared or model, {})
            function = functions.pop(key, None)
            if function is None:
                function = self._compile(task, inputs, signature, donates)
            functions[key] = function  # the last one is the most recently used
            if len(functions) > MAX_FUNCTIONS:
                del functions[next(iter(functions))]
        return function

    def _compile(self, task, inputs, signature, donates):
        # The functions live as long as the model, so they must not keep it alive.
        model_ref, strategy = weakref.ref(self.model), self.strategy
        options = self.options._replace(noise=None)
        dynamic = self._dynamic_inputs()
        structure = tree.map_structure(lambda x: None if x is None else 0, (inputs, dynamic))

        def run(*tensors):
            following = iter(tensors)
            filled = tree.map_structure(lambda x: x if x is None else next(following), structure)
            inputs, (integers, values, noise) = filled
            own_strategy = strategy if values is None else with_values(strategy, values)
            own_options = options if integers is None else options.with_integers(integers)
            return task(model_ref(), own_strategy, own_options._replace(noise=noise), *inputs)

        if keras.backend.backend() == "jax":
            first = len(_tensors(inputs[:-1]))
            donated = range(first, len(_tensors(inputs))) if donates else ()
            return _compile_on_jax(run, lambda: weights_of(model_ref(), strategy), donated)
        import tensorflow as tf

        specs = None
        if not self.jit_compile:  # XLA compiles for known shapes
            specs = inputs if signature is None else ()
            specs = tree.map_structure(_spec, _tensors((specs, dynamic)))
            specs = _tensors(signature or ()) + specs
        jit_compile = self.jit_compile
        compiled = tf.function(run, specs, autograph=False, jit_compile=jit_compile)
        return compiled if jit_compile or not strategy.runs_in_one_thread else _OneThread(compiled)


class _OneThread:
    """A function with a signature that runs in one thread.

    A step is hundreds of small operations in a row, and handing each to a pool of threads takes as
    long as running it. Its concrete function is called directly: the lookup of `tf.function` takes
    0.7 ms a call.
    """

    def __init__(self, function):
        self._function, self._trace = function, None
        self.get_concrete_function = function.get_concrete_function

    def __call__(self, *inputs):
        import tensorflow as tf

        with tf.experimental.function_executor_type("SINGLE_THREADED_EXECUTOR"):
            if tf.config.functions_run_eagerly():
                return self._function(*inputs)
            if self._trace is None:
                self._trace = self.get_concrete_function()
            return self._trace(*map(tf.convert_to_tensor, inputs))


def _tensors(inputs):
    """Return the leaves of nested inputs that are not None."""
    return [x for x in tree.flatten(inputs) if x is not None]


def bucket(length, most=None):
    """Return the least of 6, 8, 12, 16, 24, 32, 48, ... that is at least `length`, or `most`."""
    power = 1 << max(length - 1, 7).bit_length()
    size = power * 3 // 4 if length <= power * 3 // 4 else power
    return size if most is None else min(size, most)


def _spec(x):
    """Return the specification of a tensor whose first two axes, of rows and tokens, may change."""
    import tensorflow as tf

    return tf.TensorSpec([None] * len(x.shape[:2]) + list(x.shape[2:]), x.dtype)


def _compile_on_jax(run, weights, donated):
    """Return a function that reads `weights()` and returns the compiled one with their values.

    Of its inputs those of the indices `donated` are overwritten.
    """
    import jax

    @functools.partial(jax.jit, donate_argnums=[1 + index for index in donated])
    def compiled(values, *inputs):
        with keras.StatelessScope(zip(weights(), values, strict=True)):
            return run(*inputs)

    return lambda: functools.partial(compiled, [read(weight) for weight in weights()])
