"""Compiled decoding: one function for each model, kind of strategy and bucket of lengths."""

import functools
import threading
import weakref
from typing import NamedTuple

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
    """Decode int32 ids (B, S) of rows of `lengths` (B,), or None, with a compiled function."""
    tasks, rows = prepare(model, ids, lengths, strategy, options, jit_compile)
    ids, scores = tasks.run(_decode, *rows)
    if ids.shape[1] not in (None, options.max_length):  # it is that of a bucket
        # JAX would compile a slice for each length; weights may be those of a trace.
        ids = ids if is_symbolic(ids) else ops.convert_to_numpy(ids)
        ids = ops.convert_to_tensor(ids[:, : options.max_length], "int32")
    return ids, scores


def _decode(model, strategy, options, ids, lengths=None):
    return decode(model, ids, strategy, options, lengths)


def prepare(model, ids, lengths, strategy, options, jit_compile=False):
    """Return the tasks of a model, and the rows that they read: ids (B, S), and lengths if any.

    The numbers of the strategy and of the `DecodingOptions` are inputs of what is compiled. They
    are constants where a graph is built, and for a strategy without `numbers`. Where XLA compiles,
    for shapes that are known, the rows and all that is generated have a size of a `bucket`.

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
    rows = [x for x in (ids, lengths) if x is not None]
    if backend != "tensorflow" and not (
        backend == "jax"
        and numbers is not None
        and all(hasattr(each, "weights") for each in (model, *strategy.models))
    ):
        return InPlaceTasks(model, strategy, options), [*map(ops.convert_to_tensor, rows)]
    if numbers is None:
        return CompiledTasks(model, strategy, options, jit_compile), rows
    bound = None
    if not options.grows:
        bound = bucket(options.max_length, model.max_length)
        most = model.max_length if model.reads_prompt else model.max_source_length
        missing = bucket(ids.shape[1], most) - ids.shape[1]
        ids = np.pad(ids, [[0, 0], [0, missing]])  # behind the ends of the rows
    # One array: each input of a function takes some 20 microseconds.
    integers = [options.max_length, options.bos_id, *options.eos_ids]
    values = {"integers": np.array(integers, "int32"), "numbers": numbers}
    noise = strategy.noise(bound or options.max_length, len(ids))
    if noise is not None:
        values["noise"] = noise
    ends = (None,) * len(options.eos_ids)
    kind = DecodingOptions(None, None, ends, options.grows, bound=bound)
    return CompiledTasks(model, kind_of(strategy), kind, jit_compile, values), [ids, lengths]


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


class CompiledTasks(NamedTuple):
    """Tasks that are compiled once for a model and a kind of strategy and options.

    A task is a function of a module, called as `task(model, strategy, options, *inputs)`. JAX
    compiles it again for other shapes of the inputs, which come from buckets; TensorFlow once.
    """

    model: object
    strategy: object  # without the numbers that are inputs
    options: object
    jit_compile: bool
    numbers: dict | None = None  # of the strategy and the options, if they are inputs

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
        return lambda *inputs: compiled(*_tensors((inputs, self.numbers)))

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

    def _compiled(self, task, inputs, signature=None, donates=False):
        """Return the function of the tensors of the inputs and numbers, made at most once."""
        model, strategy = self.model, self.strategy
        changes = tuple(num_changes(each) for each in (model, *strategy.models))
        key = task, strategy, self.options, self.jit_compile, len(inputs), changes
        with _lock:
            functions = _functions_of.setdefault(model, {})
            function = functions.pop(key, None)
            if function is None:
                function = self._compile(task, inputs, signature, donates)
            functions[key] = function  # the last one is the most recently used
            if len(functions) > MAX_FUNCTIONS:
                del functions[next(iter(functions))]
        return function

    def _compile(self, task, inputs, signature, donates):
        # The functions live as long as the model, so they must not keep it alive.
        model_ref, strategy, options = weakref.ref(self.model), self.strategy, self.options
        structure = tree.map_structure(lambda x: None if x is None else 0, (inputs, self.numbers))

        def run(*tensors):
            following = iter(tensors)
            filled = tree.map_structure(lambda x: x if x is None else next(following), structure)
            inputs, values = filled
            if values is None:
                return task(model_ref(), strategy, options, *inputs)
            integers = [values["integers"][n] for n in range(2 + len(options.eos_ids))]
            max_length, bos_id, *eos_ids = integers
            own = {"max_length": max_length, "bos_id": bos_id, "eos_ids": eos_ids}
            own_options = options._replace(**own, noise=values.get("noise"))
            numbered = with_numbers(strategy, values["numbers"])
            return task(model_ref(), numbered, own_options, *inputs)

        if keras.backend.backend() == "jax":
            first = len(_tensors(inputs[:-1]))
            donated = range(first, len(_tensors(inputs))) if donates else ()
            return _compile_on_jax(run, lambda: weights_of(model_ref(), strategy), donated)
        import tensorflow as tf

        specs = None
        if not self.jit_compile:  # XLA compiles for known shapes
            specs = inputs if signature is None else ()
            specs = tree.map_structure(_spec, _tensors((specs, self.numbers)))
            specs = _tensors(signature or ()) + specs
        jit_compile = self.jit_compile
        compiled = tf.function(run, specs, autograph=False, jit_compile=jit_compile)
        return compiled if jit_compile or not strategy.runs_in_one_thread else _OneThread(compiled)


class _OneThread:
    """A compiled function that runs in one thread.

    A step is hundreds of small operations in a row, and handing each to a pool of threads takes as
    long as running it.
    """

    def __init__(self, function):
        self._function = function
        self.get_concrete_function = function.get_concrete_function

    def __call__(self, *inputs):
        import tensorflow as tf

        with tf.experimental.function_executor_type("SINGLE_THREADED_EXECUTOR"):
            return self._function(*inputs)


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
