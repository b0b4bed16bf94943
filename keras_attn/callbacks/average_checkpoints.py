"""Average of the last checkpoints, which translates better than the last one."""

import os
import re

import keras
import numpy as np

from keras_attn.backend.replicas import whole_value
from keras_attn.callbacks.npz import read_arrays, write_arrays
from keras_attn.distribution.workers import worker_of, worker_suffix
from keras_attn.hints import ArgumentHints
from keras_attn.ops.checks import check_paths, check_sizes


class AverageCheckpoints(ArgumentHints, keras.callbacks.Callback):
    """Save the weights of the last epochs and set their mean when training ends.

        w = (w_(e-n+1) + ... + w_e) / n

    `average_weights` computes the mean; random seeds and the optimizer are left alone. Each file is
    complete or absent. A resumed run uses the files of the run that it continues and removes those
    of epochs at or after its first, which belong to another run. The files take `last` times the
    weights on disk, and the mean three times the weights in memory. Several processes that train
    one model share the directory; each writes files of its own, and all end with the mean.

    Args:
        directory: str. Directory of the weights, one for each run.
        last: int. The number of epochs to average, n.

    Raises:
        ValueError: if `last` is not positive, or a file is damaged.

    Example:
        >>> import keras, numpy as np, tempfile
        >>> from keras_attn.callbacks import AverageCheckpoints
        >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> average = AverageCheckpoints(tempfile.mkdtemp(), last=2)
        >>> history = model.fit(np.eye(4, 1), np.ones(4), epochs=3, verbose=0, callbacks=[average])
        >>> [path[-14:] for path in average.paths()]
        ['epoch-0001.npz', 'epoch-0002.npz']

    Differs from the paper: it averages checkpoints ten minutes apart, these are an epoch apart.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 6.1.
    """

    def __init__(self, directory, last=5):
        super().__init__()
        check_paths(directory=directory)
        check_sizes(last=last)
        self.directory = directory
        self.last = last
        self._suffix = ""  # of this process's files

    def set_model(self, model):
        super().set_model(model)
        self._suffix = worker_suffix(*worker_of(model))

    def paths(self):
        """Return the paths of the files, oldest epoch first."""
        return [path for _, path in self._kept()]

    def on_epoch_begin(self, epoch, logs=None):
        self._remove(path for kept_epoch, path in self._kept() if kept_epoch >= epoch)

    def on_epoch_end(self, epoch, logs=None):
        path = os.path.join(self.directory, f"epoch-{epoch:04d}{self._suffix}.npz")
        write_arrays(path, [whole_value(weight) for weight in self.model.weights])
        self._remove(self.paths()[: -self.last])

    def on_train_end(self, logs=None):
        if paths := self.paths():
            self.model.set_weights(average_weights(paths))

    def _kept(self):
        """Return (epoch, path) of each file of this process, oldest first."""
        if not os.path.isdir(self.directory):
            return []
        file_name = re.compile(rf"epoch-(\d+){self._suffix}\.npz")
        names = map(file_name.fullmatch, os.listdir(self.directory))
        return sorted(
            (int(name[1]), os.path.join(self.directory, name[0])) for name in names if name
        )

    def _remove(self, paths):
        for path in paths:
            os.remove(path)


def average_weights(paths_or_lists):
    """Return the arithmetic mean of several sets of weights.

    Only floats are averaged, in float64, and each mean has the dtype of its weights; integers and
    booleans are those of the last set. One set is in memory at a time where files are given.

    Args:
        paths_or_lists: sequence whose members are files of `AverageCheckpoints` or lists of
            arrays such as `model.get_weights()`, all of one model.

    Returns:
        list of arrays, for `model.set_weights`.

    Raises:
        ValueError: if there is none, if shapes differ, or if a file is damaged.

    Example:
        >>> import numpy as np
        >>> from keras_attn.callbacks import average_weights
        >>> average_weights([[np.float32([1, 2]), np.int32(3)], [np.float32([3, 6]), np.int32(4)]])
        [array([2., 4.], dtype=float32), array(4, dtype=int32)]
    """
    total = None
    for count, item in enumerate(paths_or_lists, 1):
        arrays = read_arrays(item)[0] if isinstance(item, (str, os.PathLike)) else item
        arrays = [np.asarray(array) for array in arrays]
        if total is None:
            total = [np.zeros(array.shape) for array in arrays]
        if [array.shape for array in arrays] != [array.shape for array in total]:
            raise ValueError(
                "All members of `paths_or_lists` must be weights of one model. "
                f"Received: member {count - 1} has other shapes than those before it"
            )
        total = [t + a if _is_float(a) else a for t, a in zip(total, arrays)]
    if total is None:
        raise ValueError("`paths_or_lists` must not be empty. Received: paths_or_lists=[]")
    return [(t / count).astype(a.dtype) if _is_float(a) else a for t, a in zip(total, arrays)]


def _is_float(array):
    return "float" in array.dtype.name  # includes bfloat16, which NumPy does not call floating
