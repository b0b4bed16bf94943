"""Implementations of `keras_attn.backend` on TensorFlow: eagerly, in graphs and under XLA."""

import numpy as np
import tensorflow as tf

from keras_attn.backend.remat_scope import RematScope, commit, in_first_run, mark_remat
from keras_attn.backend.tensorflow_causal import attend_causal as attend_causal
from keras_attn.backend.tensorflow_graphs import delay_until, first_float
from keras_attn.backend.tensorflow_graphs import share_traces as share_traces
from keras_attn.backend.tensorflow_loops import loop_over_tiles as loop_over_tiles
from keras_attn.compat.custom_gradients import free_custom_gradients
from keras_attn.compat.tensorflow_control_flow import has_gradient, is_in_xla

free_custom_gradients()

# Operations on tensors.


def require(condition, message, x):
    with tf.control_dependencies([tf.debugging.Assert(condition, [message])]):
        return tf.identity(x)


@tf.custom_gradient
def softmax_with_logsumexp(logits):
    # The greatest weight is at least one over the number of keys, so its logarithm is exact: no
    # second pass of exponentials is needed.
    weights = tf.nn.softmax(logits)
    top = tf.reduce_max(logits, axis=-1, keepdims=True)
    log_sum = top - tf.math.log(tf.reduce_max(weights, axis=-1, keepdims=True))

    def gradient(weights_gradient, log_sum_gradient):
        mean = tf.reduce_sum(weights_gradient * weights, axis=-1, keepdims=True)
        return weights * (weights_gradient - (mean - log_sum_gradient))

    return (weights, log_sum), gradient


def read(variable):
    return tf.convert_to_tensor(variable.value)


def einsum(subscripts, *tensors):
    return tf.einsum(subscripts, *tensors)


def take_rows(table, indices):
    return tf.gather(table, indices)


def gather_rows(x, indices):
    return tf.gather(x, indices, axis=1, batch_dims=1)


def multiply_transposed(x, y):
    return tf.matmul(x, y, transpose_b=True)


def crossentropy(labels, logits, label_smoothing):
    """Compute value and gradient, softmax - q, from one softmax.

    Half the time of TensorFlow's own sparse op on CPU, where softmax is a oneDNN kernel and that
    op is not. The metrics repeat the same ops on the same logits, and the graph optimiser removes
    the repetition: in training they are free.
    """

    @tf.custom_gradient
    def losses_from(logits):
        vocabulary_size = tf.shape(logits)[-1]
        flat_logits = tf.reshape(logits, (-1, vocabulary_size))
        flat_labels = tf.reshape(tf.cast(labels, "int32"), (-1,))
        at_label = tf.stack([tf.range(tf.size(flat_labels)), flat_labels], axis=-1)
        probabilities = tf.nn.softmax(flat_logits)
        # The greatest probability is at least 1/V, so its log is safe where others underflow.
        logsumexp = tf.reduce_max(flat_logits, -1) - tf.math.log(tf.reduce_max(probabilities, -1))
        losses = logsumexp - (1.0 - label_smoothing) * tf.gather_nd(flat_logits, at_label)
        if label_smoothing:
            losses -= label_smoothing * tf.reduce_mean(flat_logits, -1)

        def gradient(upstream):
            upstream = tf.reshape(upstream, (-1,))
            uniform = label_smoothing / tf.cast(vocabulary_size, logits.dtype)
            spread = (probabilities - uniform) * tf.expand_dims(upstream, 1)
            result = tf.tensor_scatter_nd_sub(spread, at_label, (1.0 - label_smoothing) * upstream)
            return tf.reshape(result, tf.shape(logits))

        return tf.reshape(losses, tf.shape(labels)), gradient

    return losses_from(logits)


def normalize(x, epsilon, scale, shift=None):
    """Compute the gradient in closed form, from a third of the operations of the derived one."""

    @tf.custom_gradient
    def normalize_tensors(x, scale, *shift):
        centred = x - tf.reduce_mean(x, -1, keepdims=True)
        inverse = tf.math.rsqrt(tf.reduce_mean(tf.square(centred), -1, keepdims=True) + epsilon)
        normalized = centred * inverse

        def gradient(upstream):
            scaled = upstream * scale
            mean = tf.reduce_mean(scaled, -1, keepdims=True)
            slope = tf.reduce_mean(scaled * normalized, -1, keepdims=True)
            # The gradient of a bias is a sum over all axes but the last one.
            by_scale = tf.raw_ops.BiasAddGrad(out_backprop=upstream * normalized)
            by_shift = [tf.raw_ops.BiasAddGrad(out_backprop=upstream)] if shift else []
            return inverse * (scaled - mean - normalized * slope), by_scale, *by_shift

        y = normalized * scale
        return y + shift[0] if shift else y, gradient

    return normalize_tensors(x, scale, *(() if shift is None else (shift,)))


def uniform(shape, seed=None):
    # No seed of Keras: it is a variable, which exports would hold, and XLA gives other numbers.
    if seed is None:
        return tf.random.uniform(shape)
    if not tf.executing_eagerly():  # dozens of operations; XLA gives others by those below
        return tf.random.stateless_uniform(shape, seed=(seed, 0), alg="philox")
    key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=(seed, 0))
    return tf.raw_ops.StatelessRandomUniformV2(shape=shape, key=key, counter=counter, alg=1)


def is_symbolic(x):
    return not tf.executing_eagerly()


can_branch = has_gradient
# Keras runs each step by a strategy, if only the default one, which makes a context of its own.
with tf.Graph().as_default():  # outside of a scope
    _OUTSIDE_OF_STEPS = tf.distribute.get_replica_context()


def is_in_step():
    context = tf.distribute.get_replica_context()
    return tf.executing_eagerly() or context not in (None, _OUTSIDE_OF_STEPS)


def call_on_host(function, x, then=None):
    is_known = isinstance(x, (list, tuple)) and all(isinstance(size, int) for size in x)
    if tf.executing_eagerly() or is_known:
        function(np.asarray(x))
        return None if then is None else then()
    if is_in_xla():
        raise ValueError(
            "Numbers cannot leave a function that XLA compiles on TensorFlow: set "
            "`model.jit_compile = False`. Received: jit_compile=True."
        )
    call = tf.numpy_function(function, [tf.convert_to_tensor(x)], [])
    with tf.control_dependencies([call]):
        return None if then is None else then()


# Replicas of a `tf.distribute` strategy.


def replica_sum(x):
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return x
    return context.all_reduce(tf.distribute.ReduceOp.SUM, x)


def replica_gather(x):
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return x, 0
    counts = context.all_gather(tf.shape(x)[:1], axis=0)
    before = tf.range(tf.size(counts)) < context.replica_id_in_sync_group
    return context.all_gather(x, axis=0), tf.reduce_sum(tf.where(before, counts, 0))


def num_replicas():
    return tf.distribute.get_strategy().num_replicas_in_sync


def replica_number():
    context = tf.distribute.get_replica_context()
    return 0 if context is None else context.replica_id_in_sync_group


num_shares = num_replicas


def model_scope(model):
    return model.distribute_strategy.scope()


def replicas_of(variable):
    value = variable.value
    if not isinstance(value, tf.distribute.DistributedValues):
        return [variable]
    return list(value.distribute_strategy.experimental_local_results(value))


# Loops.


def loop_in_graph(condition, step, state, max_steps, reads, add_loss):
    if tf.executing_eagerly() or not has_gradient((state, reads)):
        return None
    # The first step is before the loop: it shows which variables a step changes, such as the state
    # of a random number generator, and computes the loop's invariants.
    with RematScope() as scope:
        state = step(0, state)
    if scope.contains_remat:
        commit(scope.changes(), scope.losses, add_loss)
        for number in range(1, max_steps):
            state = step(number, state)
        return state
    variables = [variable for variable, _ in scope.changes()]
    values = [value for _, value in scope.changes()]

    def total(losses):
        return sum((tf.reduce_sum(tf.cast(loss, tf.float32)) for loss in losses), tf.zeros(()))

    def body(number, state, values, loss):
        # A tensor made inside the loop must not be kept outside: values and losses are loop state.
        with RematScope(zip(variables, values, strict=True)) as inside:
            new = step(number, state)
        tf.nest.map_structure(lambda x, before: x.set_shape(before.shape), new, state)
        changes = {id(variable): value for variable, value in inside.changes()}
        values = [changes[id(variable)] for variable in variables]
        return number + 1, new, values, loss + total(inside.losses)

    _, state, values, loss = tf.while_loop(
        lambda number, state, values, loss: condition(state),
        body,
        (tf.constant(1), state, values, total(scope.losses)),
        maximum_iterations=max_steps - 1,
    )
    commit(zip(variables, values, strict=True), [loss] if scope.losses else (), add_loss)
    return state


def map_groups(compute, rows, counts, weights):
    if is_in_xla():
        return map_groups.portable(compute, rows, counts, weights)
    rest = tf.shape(rows)[0] - tf.reduce_sum(counts)
    *groups, out = tf.split(rows, tf.concat([counts, [rest]], 0), num=counts.shape[0] + 1)
    # The gradient of `unstack` is one `stack`; that of a slice is padded to all groups' size.
    per_group = zip(*(tf.unstack(w, num=counts.shape[0]) for w in weights), strict=True)
    results = [compute(rows, *own) for rows, own in zip(groups, per_group, strict=True)]
    empty = tf.zeros((tf.shape(out)[0], results[0].shape[-1]), results[0].dtype)
    return tf.ensure_shape(tf.concat([*results, empty], 0), (rows.shape[0], empty.shape[1]))


# Rematerialisation.


def remat_tensors(function, tensors):
    mark_remat()
    if in_first_run():
        results, scope = _first_run(function, tensors)
        return results, scope.losses, scope.changes()
    scope = None

    @tf.custom_gradient
    def run(*tensors):
        nonlocal scope
        results, scope = _first_run(function, tensors)
        states = scope.states

        def gradient(*upstream, variables=()):
            delay = delay_until(first_float(upstream))
            again = [delay(x) if x.dtype.is_floating else x for x in tensors]
            floats = [x for x in again if x.dtype.is_floating]
            with tf.GradientTape() as tape, RematScope(states, delay) as scope:
                tape.watch(floats)
                results = function(*again)
            results = [*results, *scope.losses]
            by_floats, by_variables = _gradients(tape, results, upstream, floats, variables)
            by_tensors = _with_none_for_integers(by_floats, tensors)
            return (by_tensors, by_variables) if variables else by_tensors

        return (*results, *scope.losses), gradient

    outputs = run(*tensors)
    count = len(outputs) - len(scope.losses)
    return outputs[:count], outputs[count:], scope.changes()


def _first_run(function, tensors):
    """Run the function without a tape; return its results and the scope."""
    constants = [tf.stop_gradient(x) if x.dtype.is_floating else x for x in tensors]
    delay = delay_until(first_float(tensors))
    with RematScope(delay=delay, is_first_run=True) as scope:
        results = function(*constants)
    return results, scope


def _gradients(tape, results, upstream, floats, variables):
    """Return gradients by floats and by variables; zero if the results do not depend on them."""
    sources, zero = [*floats, *variables], tf.UnconnectedGradients.ZERO
    by_sources = tape.gradient(results, sources, list(upstream), zero)
    by_floats, by_variables = by_sources[: len(floats)], by_sources[len(floats) :]
    # The backward pass continues after all gradients are computed: a graph would else postpone
    # those by variables, and what they are computed from would wait in memory.
    with tf.control_dependencies(by_variables):
        return [tf.identity(x) for x in by_floats], by_variables


def _with_none_for_integers(by_floats, tensors):
    """Return the gradients by the floating ones of `tensors`, and None for the others."""
    by_floats = iter(by_floats)
    return [next(by_floats) if x.dtype.is_floating else None for x in tensors]


# Reversible streams: the backward pass reconstructs the input of each step.


def reversible_tensors(functions, first, second, operands, add_loss):
    mark_remat()
    if in_first_run():
        pair, scopes, whole = _forward(functions, first, second, operands)
        return pair, _losses(scopes), whole.changes()
    whole = None

    @tf.custom_gradient
    def run(first, second, *operands):
        nonlocal whole
        pair, scopes, whole = _forward(functions, first, second, operands)
        steps = [(f, s.states, len(s.losses)) for f, s in zip(functions, scopes, strict=True)]

        def gradient(*upstream, variables=()):
            backward = _Backward(pair, upstream, operands, variables)
            for step in reversed(steps):
                backward.undo(*step)
            by_operands = _with_none_for_integers(backward.by_floats, operands)
            by_tensors = [*backward.by_pair, *by_operands]
            return (by_tensors, backward.by_variables) if variables else by_tensors

        return (*pair, *_losses(scopes)), gradient

    first, second, *losses = run(first, second, *operands)
    return (first, second), losses, whole.changes()


def _forward(functions, first, second, operands):
    """Return the last pair, the scope of each step, and a scope of all changes."""
    scopes = []
    with RematScope(is_first_run=True) as whole:
        for function in functions:
            change, scope = _first_run(function, (second, *operands))
            for variable, value in scope.changes():
                variable.assign(value)
            first, second = second, tf.stop_gradient(first) + tf.cast(change, first.dtype)
            scopes.append(scope)
    return (first, second), scopes, whole


def _losses(scopes):
    return [loss for scope in scopes for loss in scope.losses]


class _Backward:
    """State of the backward pass: the pair of streams, and the gradients so far."""

    def __init__(self, pair, upstream, operands, variables):
        self.pair, self.by_pair = pair, upstream[:2]
        self.by_losses = list(upstream[2:])
        self.operands = operands
        self.by_floats = [tf.zeros_like(x) for x in operands if x.dtype.is_floating]
        self.variables = variables
        self.by_variables = [None] * len(variables)

    def undo(self, function, states, num_losses):
        """Go from (b, a + f(b)) back to (a, b)."""
        (b, total), (by_b, by_total) = self.pair, self.by_pair
        delay = delay_until(by_total)
        b, *again = (delay(x) if x.dtype.is_floating else x for x in (b, *self.operands))
        floats = [b, *(x for x in again if x.dtype.is_floating)]
        with tf.GradientTape() as tape, RematScope(states, delay) as scope:
            tape.watch(floats)
            change = tf.cast(function(b, *again), total.dtype)
        watched = {variable.ref() for variable in tape.watched_variables()}
        used = [i for i, variable in enumerate(self.variables) if variable.ref() in watched]
        by_losses = [self.by_losses.pop() for _ in range(num_losses)][::-1]
        results, upstream = [change, *scope.losses], [by_total, *by_losses]
        variables = [self.variables[i] for i in used]
        by_all, by_variables = _gradients(tape, results, upstream, floats, variables)
        more, *by_floats = by_all
        self.pair, self.by_pair = (total - change, b), (by_total, by_b + more)
        self.by_floats = [x + y for x, y in zip(self.by_floats, by_floats, strict=True)]
        for i, part in zip(used, by_variables, strict=True):
            total = self.by_variables[i]
            if total is not None:  # either may be sparse
                part = tf.convert_to_tensor(total) + tf.convert_to_tensor(part)
            self.by_variables[i] = part
