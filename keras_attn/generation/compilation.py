"""Compiled decoding: one function for each model, kind of strategy and bucket of lengths."""

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
    compiled = Compiled.of(model, ids, lengths, strategy, options, jit_compile)
    ids, scores = compiled.run(_decode, *compiled.rows)
    if compiled.numbers and ids.shape[1] != options.max_length:
        # JAX would compile a slice for each length; weights may be those of a trace.
        ids = ids if is_symbolic(ids) else ops.convert_to_numpy(ids)
        ids = ops.convert_to_tensor(ids[:, : options.max_length], "int32")
    return ids, scores


def _decode(model, strategy, options, ids, lengths=None):
    return decode(model, ids, strategy, options, lengths)


class Compiled(NamedTuple):
    """Functions of a model, a strategy and `DecodingOptions`, compiled once for their kind.

    The numbers of the strategy and of the options are inputs of the functions. They are constants
    where a graph is built, and for a strategy without `numbers`. Where XLA compiles, for shapes
    that are known, arrays have a size of a `bucket`.

    On JAX the weights are inputs too: a model that does not name them, a strategy without `numbers`
    and a call inside a trace are decoded in place, as all are on torch.
    """

    model: object
    strategy: object  # of numbers that may be any
    options: object
    rows: tuple  # of what is read: int32 ids (B, S), and their lengths (B,) unless they have none
    jit_compile: bool
    numbers: tuple = ()  # of the options and the strategy, one element if they are inputs
    is_in_place: bool = False

    @classmethod
    def of(cls, model, ids, lengths, strategy, options, jit_compile=False):
        """Return the functions that read int32 ids (B, S) of rows of `lengths` (B,), or None."""
        backend = keras.backend.backend()
        if jit_compile and backend != "tensorflow":
            raise ValueError(
                f"`jit_compile=True` needs the TensorFlow backend. Received: backend={backend!r}."
            )
        numbers = None if is_symbolic(ids) or is_symbolic(lengths) else numbers_of(strategy)
        options = options._replace(grows=backend == "tensorflow" and not jit_compile)
        rows = tuple(x for x in (ids, lengths) if x is not None)
        if backend != "tensorflow" and not (
            backend == "jax"
            and numbers is not None
            and all(hasattr(each, "weights") for each in (model, *strategy.models))
        ):
            rows = tuple(map(ops.convert_to_tensor, rows))
            return cls(model, strategy, options, rows, jit_compile, is_in_place=True)
        if numbers is None:
            return cls(model, strategy, options, rows, jit_compile)
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
        return cls(model, kind_of(strategy), kind, (ids, lengths), jit_compile, (values,))

    def run(self, task, *inputs, signature=None):
        """Return `task(model, strategy, options, *inputs)`, a function of a module.

        Args:
            inputs: nested tensors and arrays; None stays None.
            signature: of the inputs on TensorFlow, nested as these; by default that of tensors
                whose first two axes, of rows and tokens, may change.
        """
        if self.is_in_place:
            return task(self.model, self.strategy, self.options, *inputs)
        return self._function(task, inputs, signature)(*_tensors((inputs, self.numbers)))

    def output_specs(self, task, *inputs):
        """Return the specifications of what `run` returns on TensorFlow; None where it has none."""
        if self.is_in_place or keras.backend.backend() != "tensorflow":
            return None
        import tensorflow as tf

        function = self._function(task, inputs, None)
        outputs = function.get_concrete_function().structured_outputs
        return tree.map_structure(
            lambda x: None if x is None else tf.TensorSpec(x.shape, x.dtype), outputs
        )

    def _function(self, task, inputs, signature):
        """Return the compiled function of the tensors of the inputs and of the numbers.

        It is compiled at most once for inputs of the same number.
        """
        model, strategy = self.model, self.strategy
        changes = tuple(num_changes(each) for each in (model, *strategy.models))
        key = task, strategy, self.options, self.jit_compile, len(inputs), changes
        with _lock:
            functions = _functions_of.setdefault(model, {})
            function = functions.pop(key, None)
            if function is None:
                function = self._compile(task, inputs, signature)
            functions[key] = function  # the last one is the most recently used
            if len(functions) > MAX_FUNCTIONS:
                del functions[next(iter(functions))]
        return function

    def _compile(self, task, inputs, signature):
        # The functions live as long as the model, so they must not keep it alive.
        model_ref, strategy, options = weakref.ref(self.model), self.strategy, self.options
        arguments = inputs, self.numbers
        structure = tree.map_structure(lambda x: None if x is None else 0, arguments)
        jit_compile = self.jit_compile

        def run(*tensors):
            following = iter(tensors)
            filled = tree.map_structure(lambda x: x if x is None else next(following), structure)
            inputs, numbers = filled
            if not numbers:
                return task(model_ref(), strategy, options, *inputs)
            (values,) = numbers
            integers = [values["integers"][n] for n in range(2 + len(options.eos_ids))]
            max_length, bos_id, *eos_ids = integers
            own = {"max_length": max_length, "bos_id": bos_id, "eos_ids": eos_ids}
            own_options = options._replace(**own, noise=values.get("noise"))
            numbered = with_numbers(strategy, values["numbers"])
            return task(model_ref(), numbered, own_options, *inputs)

        if keras.backend.backend() == "jax":
            return _compile_on_jax(run, lambda: weights_of(model_ref(), strategy))
        import tensorflow as tf

        # Of XLA a function of known shapes.
        specs = tree.map_structure(_spec, arguments if signature is None else self.numbers)
        specs = None if jit_compile else _tensors((signature or (), specs))
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


def _compile_on_jax(run, weights):
    """Return a function that JAX compiles with the values of `weights()` as inputs."""
    import jax

    @jax.jit
    def compiled(values, *inputs):
        with keras.StatelessScope(zip(weights(), values, strict=True)):
            return run(*inputs)

    return lambda *inputs: compiled([read(weight) for weight in weights()], *inputs)
