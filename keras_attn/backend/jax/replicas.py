"""Parts of variables that are divided among the devices of several processes."""

import jax
import numpy as np
from jax.experimental import multihost_utils


class Shard:
    """The part of a variable that one device of this process holds."""

    def __init__(self, variable, index):
        self.variable, self.index = variable, index

    @property
    def shape(self):
        return self._shards[self.index].data.shape

    def numpy(self):
        return np.asarray(self._shards[self.index].data)

    def assign(self, value):
        whole, shards = self.variable.value, self._shards
        arrays = [shard.data for shard in shards]
        arrays[self.index] = jax.device_put(value, shards[self.index].device)
        made = jax.make_array_from_single_device_arrays(whole.shape, whole.sharding, arrays)
        self.variable.assign(made)

    @property
    def _shards(self):
        return self.variable.value.addressable_shards


def is_divided(variable):
    value = variable.value
    return not (value.is_fully_addressable or value.is_fully_replicated)


def local_parts(variable):
    if not is_divided(variable):
        return [variable]
    return [Shard(variable, i) for i in range(len(variable.value.addressable_shards))]


def whole_value(variable):
    if not is_divided(variable):
        return variable.numpy()
    return np.asarray(multihost_utils.process_allgather(variable.value, tiled=True))
