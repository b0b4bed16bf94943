"""Parts of variables that are divided among the devices of several processes."""

import jax
import keras
import numpy as np
from jax.experimental import multihost_utils


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
    def part(index):
        box = _box(index, variable.shape)
        return parts[box] if box in parts else parts[None][index]

    arrays = {box: np.asarray(array, variable.dtype) for box, array in parts.items()}
    parts, sharding = arrays, variable.value.sharding
    variable.assign(jax.make_array_from_callback(variable.shape, sharding, part))


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
