"""Implementations of `keras_attn.backend` on JAX."""

import collections
import functools

import jax
import keras
import numpy as np
from jax.experimental import io_callback, multihost_utils
from keras import ops

# Operations on tensors.


def is_symbolic(x):
    return isinstance(x, jax.core.Tracer)


def has_fused_attention(query, key, value):
    """cuDNN's kernel, on a GPU."""
    if jax.default_backend() != "gpu" or value.shape[-1] != key.shape[-1]:
        return False
    # JAX checks this in the backward pass only, when it is too late for another choice.
    if query.shape[2] % 2 or key.shape[2] % 2:
        return False
    return _has_kernel(tuple((x.shape, str(x.dtype)) for x in (query, key, value)))


@functools.lru_cache(maxsize=1024)
def _has_kernel(shapes):
    """Ask Keras, JAX and cuDNN by shapes; nothing is computed."""
    tensors = [jax.ShapeDtypeStruct((b, t, n, h), dtype) for (b, n, t, h), dtype in shapes]
    try:
        jax.eval_shape(functools.partial(ops.dot_product_attention, flash_attention=True), *tensors)
    except (ImportError, RuntimeError, TypeError, ValueError):  # no kernel, or not for such tensors
        return False
    return True


# Calls that compiled functions have asked for. They are made afterwards: to read an array inside a
# callback can wait forever for the one thread that runs the callback.
_pending = collections.deque()


def call_on_host(function, x, then=None):
    if isinstance(x, jax.core.Tracer):
        x = jax.lax.stop_gradient(x)  # a callback has no derivative
        io_callback(lambda x: _pending.append((function, x)), None, x, ordered=True)
    else:
        function(np.asarray(x))
    return None if then is None else then()


def wait_for_host_calls():
    jax.effects_barrier()
    while _pending:
        function, x = _pending.popleft()
        function(np.asarray(x))


# Loops.


def loop_over_tiles(compute, tiles, shared, dtypes, keys, visible, at_once):
    """A loop whose steps are computed again in the backward pass."""
    # Inside a loop nothing can be merged with what is computed again, so nothing needs a barrier.
    compute = jax.checkpoint(compute, prevent_cse=False)
    size = len(tiles[0]) // len(visible)
    groups = []
    for n, length in enumerate(visible):
        seen = [key[:, :, :length] for key in keys]
        group = tuple(x[n * size : (n + 1) * size] for x in tiles)
        groups.append(jax.lax.map(lambda tile: compute(*tile, *seen, *shared), group))
    return tuple(jax.numpy.concatenate(parts) for parts in zip(*groups, strict=True))


# Parts of variables that are divided among the devices of several processes.


def processes_share_state():
    return True


def keep_rows(x):
    distribution = keras.distribution.distribution()
    if not isinstance(distribution, keras.distribution.ModelParallel) or x.ndim < 2:
        return x
    if x.shape[0] % distribution.num_model_replicas:
        return x
    return keras.distribution.distribute_tensor(x, distribution.get_data_layout(x.shape))


def held_boxes(variable):
    shape = variable.shape
    indices = variable.value.sharding.addressable_devices_indices_map(shape).values()
    return list(dict.fromkeys(_box(index, shape) for index in indices))


def held_parts(variable):
    shards = {_box(s.index, variable.shape): s for s in variable.value.addressable_shards}
    # Copies, since the next step takes the memory of the arrays for its own.
    return {box: np.array(shard.data) for box, shard in shards.items()}


def saved_parts(variable, is_shared):
    if variable.value.is_fully_addressable:
        return {None: np.array(variable.value)}
    shards = [s for s in variable.value.addressable_shards if s.replica_id == 0]
    return {_box(s.index, variable.shape): np.array(s.data) for s in shards}


def assign_parts(variable, parts):
    arrays = {box: np.asarray(array, variable.dtype) for box, array in parts.items()}

    def array_at(index):
        box = _box(index, variable.shape)
        return arrays[box] if box in arrays else arrays[None][index]

    sharding = variable.value.sharding
    variable.assign(jax.make_array_from_callback(variable.shape, sharding, array_at))


def numbers_of_processes(number):
    if jax.process_count() == 1:
        return [number]
    return np.ravel(multihost_utils.process_allgather(np.int32(number))).tolist()


def _box(index, shape):
    return tuple(part.indices(size)[:2] for part, size in zip(index, shape))


def is_divided(variable):
    value = variable.value
    if not isinstance(value, jax.Array):  # inside `whole_values`
        return False
    return not (value.is_fully_addressable or value.is_fully_replicated)


def whole_value(variable):
    if not is_divided(variable):
        return variable.numpy()
    return np.asarray(multihost_utils.process_allgather(variable.value, tiled=True))
