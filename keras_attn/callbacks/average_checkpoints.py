"""Average of the last checkpoints, which translates better than the last one."""

import os

import keras
import numpy as np

from keras_attn.backend.replicas import processes_share_state, wait_for_processes
from keras_attn.callbacks.checkpoints import Checkpoints, files_with
from keras_attn.callbacks.training_state import (
    StoredState,
    assign_all,
    raise_in_all_processes,
    read_stored,
    read_variables,
)
from keras_attn.distribution.workers import worker_of
from keras_attn.hints import ArgumentHints
from keras_attn.ops.checks import check_paths, check_sizes, check_that

STEM = "epoch-{:04d}"


class AverageCheckpoints(ArgumentHints, keras.callbacks.Callback):
    """Save the weights of the last epochs and set their mean when training ends.

        w = (w_(e-n+1) + ... + w_e) / n

    `average_weights` computes the mean; random seeds and the optimizer are left alone. Each `fit`
    ends with the mean: where another `fit` continues from the last weights, as after the rest of an
    epoch that `Resume` had to repeat, give it in a `WithoutTrainEnd`. Each file is complete or
    absent. A resumed run uses the files of the run that it continues and removes those of epochs at
    or after its first, which belong to another run. The files take `last` times the weights on
    disk. The mean takes three times the size of float32 weights in memory, beside the model's own.
    Several processes that train one model share the directory, and all end with the mean. On
    TensorFlow each writes files of its own; on JAX each writes the part of the weights that it
    holds, and a resumed run may have another number of processes.

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
        self._files = None

    def set_model(self, model):
        super().set_model(model)
        kind = "shard" if processes_share_state() else "worker"
        self._files = Checkpoints(self.directory, *worker_of(model), kind, STEM)

    def paths(self):
        """Return the path of a file of each epoch, oldest epoch first."""
        files = self._files or Checkpoints(self.directory, stem=STEM)
        return [files.read_paths(epoch)[0] for epoch in files.readable()]

    def on_epoch_begin(self, epoch, logs=None):
        self._files.remove(lambda kept: kept >= epoch)

    def on_epoch_end(self, epoch, logs=None):
        self._files.write(epoch, read_variables(self.model.weights))
        self._remove_older()

    def on_train_end(self, logs=None):
        wait_for_processes()  # which have then written their last file
        self._remove_older()
        with raise_in_all_processes():
            means = self._means()
        if means:
            assign_all(self.model.weights, means)

    def _last(self):
        """Return the last epochs of which the files of all processes are there."""
        return self._files.readable()[-self.last :]

    def _remove_older(self):
        kept = self._last()
        self._files.remove(lambda other: kept and other < kept[0])

    def _means(self):
        """Return the parts of each weight that this process holds, averaged."""
        boxes = []

        def sets():
            for epoch in self._last():
                with self._files.read(epoch) as state:
                    parts = read_stored(self.model.weights, state)
                boxes[:] = map(list, parts)
                yield [array for part in parts for array in part.values()]
                del parts, state  # before the next set is read

        if not self._last():
            return []
        means = iter(average_weights(sets()))
        return [{box: next(means) for box in held} for held in boxes]


def average_weights(paths_or_lists):
    """Return the arithmetic mean of several sets of weights.

    Only floats are averaged, in float64, and each mean has the dtype of its weights; integers and
    booleans are those of the last set. One set is in memory at a time where files are given.

    Args:
        paths_or_lists: sequence whose members are files of `AverageCheckpoints` or lists of
            arrays such as `model.get_weights()`, all of one model. A file that holds a part of the
            weights is read with those beside it that hold the others.

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
    is_one = isinstance(paths_or_lists, (str, os.PathLike))
    check_that(not is_one, "a list of files or of lists", paths_or_lists=paths_or_lists)
    total, dtypes, count = None, [], 0
    for item in paths_or_lists:
        arrays = _arrays_of(item)
        if total is None:
            total = [np.zeros(array.shape) for array in arrays]
        if [array.shape for array in arrays] != [array.shape for array in total]:
            raise ValueError(
                "All members of `paths_or_lists` must be weights of one model. "
                f"Received: member {count} has other shapes than those before it"
            )
        total = [np.add(t, a, out=t) if _is_float(a.dtype) else a for t, a in zip(total, arrays)]
        dtypes = [array.dtype for array in arrays]
        count += 1
        del item, arrays  # before the next set is read
    if total is None:
        raise ValueError("`paths_or_lists` must not be empty. Received: paths_or_lists=[]")
    for index, dtype in enumerate(dtypes):  # each sum is freed before the next mean is made
        if _is_float(dtype):
            total[index] = np.divide(total[index], count, out=total[index]).astype(dtype)
    return total


def _arrays_of(path_or_list):
    """Return the arrays of a file, or of a list."""
    if not isinstance(path_or_list, (str, os.PathLike)):
        return [np.asarray(array) for array in path_or_list]
    with StoredState(files_with(path_or_list)) as state:
        return [state.read(number) for number in range(len(state.shapes))]


def _is_float(dtype):
    return "float" in dtype.name  # includes bfloat16, which NumPy does not call floating
