"""Functions of a TensorFlow graph: shared among equal layers, or not begun early."""

import collections

import keras
import tensorflow as tf
from keras import tree

from keras_attn.backend.layer_kinds import layer_kinds
from keras_attn.backend.remat_scope import RematScope, commit, in_first_run, mark_remat
from keras_attn.compat.variable_values import stored_value

# TensorFlow optimizes at most so many equal layers together. With more of them the first step would
# take longer, and no step less time.
MAX_MERGED = 16


def delay_until(tensor):
    """Return an identity function whose result is available only after `tensor` is.

    A graph computes as early as it can, random numbers at its very start, and merges equal
    computations. The function adds a zero that no compiler can foresee (1 if `tensor` begins with
    NaN), so the recomputation neither starts early nor merges with the first run.
    """
    begins_with_nan = tf.reduce_any(tf.math.is_nan(tf.reshape(tensor, [-1])[:1]))
    return lambda x: x + tf.cast(begins_with_nan, x.dtype)


def first_float(tensors):
    return next(x for x in tensors if x.dtype.is_floating)


def share_traces(functions, layers, plain, add_loss, recomputes=True):
    """Share graphs among the layers of this call.

    Each kind of layer becomes two functions of the graph: one computes the layer, and one its
    gradient, which computes the layer again or reads what the first one keeps. All layers of the
    kind call them with their own weights, so that the time to build the graph of a deep model is
    that of a few layers.
    """
    variables = [v for layer in layers for v in layer.variables]
    if not recomputes and tf.distribute.has_strategy():
        return plain  # the replicas' variables are not those that are read
    if tf.executing_eagerly() or any(stored_value(v) is None for v in variables):
        return plain  # without values, Keras only infers shapes
    kinds, shared = layer_kinds(layers), {}
    counts = collections.Counter(kinds)

    def apply(number, x, arguments):
        kind = kinds[number]
        if counts[kind] == 1:
            return plain(number, x, arguments)
        leaves = tree.flatten((x, arguments))
        key = kind, str([_spec(leaf) if tf.is_tensor(leaf) else leaf for leaf in leaves])
        if key not in shared:
            is_apart = recomputes or counts[kind] > MAX_MERGED
            shared[key] = _SharedFunction(
                functions[number], layers[number], (x, arguments), recomputes, is_apart
            )
        function = shared[key]
        if not function.is_closed:
            return plain(number, x, arguments)
        tensors = [leaf for leaf in leaves if tf.is_tensor(leaf)]
        results, losses, changes = function(tensors, layers[number].variables)
        commit(changes, losses, add_loss)
        return tree.pack_sequence_as(function.structure, results)

    return apply


class _SharedFunction:
    """The two functions of a graph for one kind of layer.

    Args:
        function: of the `arguments` of a layer, which reads the weights and states of `layer`.
        recomputes: bool. If True, the gradient computes the layer again.
        is_apart: bool. If True, TensorFlow does not merge the function into its caller.

    Attributes:
        structure: nesting of the function's results.
        is_closed: True if the function reads and changes no other tensor or variable, and changes
            no trainable weight.
    """

    def __init__(self, function, layer, arguments, recomputes, is_apart):
        self._function, self._variables, self._arguments = function, layer.variables, arguments
        self._recomputes = recomputes
        tensors = [leaf for leaf in tree.flatten(arguments) if tf.is_tensor(leaf)]
        self._specs = [_spec(x) for x in (*tensors, *map(stored_value, self._variables))]
        self._num_tensors = len(tensors)
        has_gradient = [True] * len(tensors) + [v.trainable for v in self._variables]
        pairs = zip(self._specs, has_gradient, strict=True)
        # The operands by which there is a gradient: frozen weights are none.
        self._sources = [i for i, (x, has) in enumerate(pairs) if has and x.dtype.is_floating]
        self._first = _trace(self._run, self._specs, is_apart)
        self.is_closed = self.is_closed and not self._first.captured_inputs
        self._gradient = None

    def __call__(self, tensors, variables):
        """Return results, losses, and pairs of one of the `variables` and its new value."""
        if self._recomputes:
            mark_remat()
        changed = None

        def first_run(*operands):
            nonlocal changed
            results, changed = self._split(self._first(*operands))
            return results

        @tf.custom_gradient
        def run(*operands):
            constants = [tf.stop_gradient(x) if x.dtype.is_floating else x for x in operands]
            return first_run(*constants), lambda *upstream: self._gradients(operands, upstream)

        with RematScope() as scope:
            values = [scope.value_before(variable) for variable in variables]
        operands = [*tensors, *values]
        recomputes = self._recomputes and not in_first_run()
        results = list((run if recomputes else first_run)(*operands))
        count = len(results) - self._num_losses
        changes = [(variables[i], x) for i, x in zip(self._changed, changed, strict=True)]
        return results[:count], results[count:], changes

    def _run(self, *operands):
        """Return the results, the losses and the new values of variables as one list."""
        operands, leaves = iter(operands), tree.flatten(self._arguments)
        filled = [next(operands) if tf.is_tensor(leaf) else leaf for leaf in leaves]
        values = list(operands)
        scope = keras.StatelessScope(collect_losses=True, initialize_variables=False)
        # Its constructor would replace values by others in the dtype of a mixed-precision policy.
        state = {id(v): value for v, value in zip(self._variables, values, strict=True)}
        scope.state_mapping.update(state)
        with scope:
            results = self._function(*tree.pack_sequence_as(self._arguments, filled))
        self.structure = tree.map_structure(lambda leaf: None, results)
        self._num_losses = len(scope.losses)
        after = [scope.state_mapping[id(v)] for v in self._variables]
        pairs = zip(after, values, strict=True)
        self._changed = [i for i, (x, value) in enumerate(pairs) if x is not value]
        self.is_closed = scope.state_mapping.keys() == state.keys() and not any(
            self._variables[i].trainable for i in self._changed
        )
        return [*tree.flatten(results), *scope.losses, *(after[i] for i in self._changed)]

    def _split(self, results):
        """Return the results with the losses, and the new values."""
        count = len(results) - len(self._changed)
        return results[:count], results[count:]

    def _gradients(self, operands, upstream):
        """Return the gradients by the operands, None for integers and frozen weights."""
        upstream = [x for x in upstream if x.dtype.is_floating]
        delay, count = delay_until(first_float(upstream)), self._num_tensors
        tensors = [delay(x) if x.dtype.is_floating else x for x in operands[:count]]
        operands = [*tensors, *operands[count:]]
        if self._gradient is None:
            specs = [*self._specs, *map(_spec, upstream)]
            self._gradient = _trace(self._run_again, specs, is_apart=True)
        gradients = self._gradient(*operands, *upstream)
        by_operand = dict(zip(self._sources, gradients, strict=True))
        return [by_operand.get(i) for i in range(len(operands))]

    def _run_again(self, *operands):
        count = len(self._specs)
        operands, upstream = operands[:count], operands[count:]
        sources = [operands[i] for i in self._sources]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            results, _ = self._split(self._run(*operands))
        results = [x for x in results if x.dtype.is_floating]
        return tape.gradient(results, sources, list(upstream), tf.UnconnectedGradients.ZERO)


def _spec(x):
    return tf.TensorSpec(x.shape, x.dtype)


def _trace(function, specs, is_apart):
    # A function that is not merged into its caller begins when all its operands are there, so
    # nothing is computed again before the gradient needs it.
    attributes = {"_noinline": True} if is_apart else None
    function = tf.function(function, autograph=False, experimental_attributes=attributes)
    return function.get_concrete_function(*specs)
