"""Strategies: the devices and processes that train a model."""

import contextlib
import functools
import os
import signal
import sys
import threading

import keras

from keras_attn.backend.replicas import refuse_model_parallel
from keras_attn.compat.keras_fit import patch_fit
from keras_attn.distribution.model_parallel import ModelParallel
from keras_attn.distribution.workers import (
    MISSING_ENVIRONMENT,
    has_others_for_jax,
    workers,
    workers_from_environment,
)
from keras_attn.ops.checks import check_choice


class OneDevice:
    """Strategy of one device, on a backend other than TensorFlow."""

    num_replicas_in_sync = 1

    def scope(self):
        return contextlib.nullcontext()


def strategy(name, *, data=None, model=None, shards_parameters=False):
    """Return the strategy of a name: the devices and processes that train a model.

        none          one device
        mirrored      all GPUs of this machine; without any, its (logical) CPU devices
        multi_worker  all GPUs, or TPU cores, of several machines, a process each
        tpu           all cores of this machine's TPU
        model_parallel  a mesh of devices that divides the weights too, on JAX: `ModelParallel`

    Make the model, compile it and make the data in its scope; all else is as on one device:

        with strategy.scope():
            model = ...
            model.compile(...)
            data = batches.as_dataset()
        model.fit(data, ...)

    **Batches.** The batch size of the data (the tokens of `keras_attn.text.TokenBatches`, the rows
    of `SegmentStreams`) is that of the global batch: neither it nor the learning rate depends on
    the number of replicas R. Each replica gets an R-th part of the rows, the first replica the
    first rows; if R does not divide their number, the last replicas get fewer. Where all batches
    have one number of rows, and on JAX, rows of zeros, whose labels are padding, fill it up. So R
    replicas take the steps of one device and end with its weights but for rounding.

    **Losses** of `keras_attn.losses` with an `ignore_class`, the ponder loss, and terms that belong
    to a parameter, such as the span loss, are divided by the number of real tokens of the global
    batch. Rows of padding do not count in them or in the metrics. So `loss` and `val_loss` are
    those of one device; on JAX alone Keras, which averages them over batches by their rows, counts
    the rows that fill the last one. `ContrastiveLoss`, losses of pixels and the metrics of them
    count such rows: give them batches that the replicas divide. Losses of Keras itself divide by
    each replica's own number of tokens and count rows of padding too.

    **Dropout** of our layers and models draws another mask on each replica, so a run with dropout
    is not that of one device. Layers of Keras itself, such as `keras.layers.Dropout` in a model of
    one's own, draw the same mask on all: rows of one index in two replicas lose the same units.

    **Clipping** by `global_clipnorm` is that of the global gradient with
    `keras_attn.optimizers.Adam`; Keras's own optimizers clip each replica's.

    **Memories** (`keras_attn.memory.StatefulSegments`) belong to a row: each replica keeps those of
    its rows from batch to batch. Checkpoints hold those of this process.

    **Several machines.** All processes run the same program with the same seed and see the same
    data, of which each computes its part; `keras_attn.distribution.workers.workers` says how a
    process finds the others. `Resume` and `AverageCheckpoints` keep the state of all in one
    directory; what `save` writes, each process writes to a place of its own. On JAX a process can
    save alone only after `keras.distribution.set_distribution(None)`: Keras makes a variable while
    it saves an optimizer, which is done by all processes or none. If one stops, the others stop
    too, as `worker_failure_message` describes. One that ends early should end by `os._exit`: at its
    end either backend waits for the others, and they for it.

    On JAX the replicas are shards of one computation: losses and clipping are global whatever they
    are, and memories are whole. There `fit` takes a `keras.utils.PyDataset` made after the
    strategy, such as those of `keras_attn.text`, which fills its batches and feeds each process its
    rows.

    Args:
        name: str.
        data, model, shards_parameters: as of `keras_attn.distribution.ModelParallel`, with the name
            "model_parallel" only. Its processes are those of `multi_worker`; without others, one.

    Returns:
        An object with `scope()` and `num_replicas_in_sync`: on TensorFlow the
        `tf.distribute.Strategy`, on JAX a `keras.distribution.DataParallel` or a `ModelParallel`,
        which is also set as the distribution of the process.

    Raises:
        ValueError: if `name` is unknown, or the backend or the environment does not support it; if
            `keras.distribution.ModelParallel` is set on another backend than JAX; if a mesh is
            given with another name, or does not fit.

    Example:
        >>> from keras_attn.distribution import strategy
        >>> strategy("none").num_replicas_in_sync
        1
    """
    refuse_model_parallel(name)
    check_choice((*_KINDS, "model_parallel"), name=name)
    if name == "model_parallel":
        return _model_parallel(data=data, model=model, shards_parameters=shards_parameters)
    mesh = {"data": data, "model": model, "shards_parameters": shards_parameters}
    if mesh != {"data": None, "model": None, "shards_parameters": False}:
        raise ValueError(
            "`data`, `model` and `shards_parameters` belong to the name 'model_parallel'. "
            f"Received: name={name!r}, {', '.join(f'{k}={v!r}' for k, v in mesh.items())}."
        )
    backend = keras.backend.backend()
    kinds = {"tensorflow": _KINDS, "jax": _ON_JAX}.get(backend, {"none": OneDevice})
    if name not in kinds:
        raise ValueError(
            f"On the backend {backend} there is no strategy {name!r}, only {list(kinds)}; with "
            f"KERAS_BACKEND=tensorflow there are {list(_KINDS)}. Received: name={name!r}"
        )
    return kinds[name]()


def _none():
    import tensorflow as tf

    return tf.distribute.get_strategy()


@functools.cache  # two in one process would exchange each other's gradients
def _mirrored():
    import tensorflow as tf

    _share_cores()
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    made = tf.distribute.MirroredStrategy([device.name for device in devices])
    patch_fit(made, is_needed=False)
    return made


def _share_cores():
    """Divide the cores among logical CPU devices, so that one does not wait for the others.

    A number of threads that the program has set stays.
    """
    import tensorflow as tf

    (cpu,) = tf.config.list_physical_devices("CPU")
    count = len(tf.config.get_logical_device_configuration(cpu) or ())
    if count > 1 and not tf.config.threading.get_intra_op_parallelism_threads():
        with contextlib.suppress(RuntimeError):  # too late: something has been computed
            threads = max(1, os.cpu_count() // count)
            tf.config.threading.set_intra_op_parallelism_threads(threads)


def _multi_worker():
    addresses, index = workers()
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": addresses}), task_type="worker", task_id=index
    )
    try:
        with _waiting(_waiting_message(addresses, index)):
            made = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
    except tf.errors.UnknownError as error:
        raise ValueError(
            f"This process cannot listen at {addresses[index]}: another one does, perhaps the same "
            f"worker started twice. Received: {error.message.splitlines()[0]}"
        ) from error
    except RuntimeError as error:
        raise ValueError(
            "`multi_worker` must be made before anything is computed: TensorFlow cannot join other "
            f"processes afterwards. Received: {error}"
        ) from error
    patch_fit(made, is_needed=len(addresses) > 1)
    return made


@contextlib.contextmanager
def _waiting(message):
    """Print the processes that this one waits for, and let Ctrl-C end it while it waits.

    Python cannot handle the signal meanwhile. SIGTERM does not end it on TensorFlow, which takes it
    for the notice of a preemption.
    """
    if message:  # before the wait: neither backend lets another thread run meanwhile
        print(message, file=sys.stderr, flush=True)
    is_main = threading.current_thread() is threading.main_thread()
    # A handler of the program's own stays, and so does a signal that is ignored.
    is_default = is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if is_default:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _waiting_message(addresses, index):
    """Return the message of a process that waits for others; empty without others."""
    others = ", ".join(address for i, address in enumerate(addresses) if i != index)
    return others and f"Worker {index} of {len(addresses)} waits for {others}."


def _tpu():
    import tensorflow as tf

    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect(
            os.environ.get("TPU_NAME", "local")
        )
    except (ValueError, RuntimeError, tf.errors.OpError) as error:
        raise ValueError(
            "`tpu` needs a TPU and a TensorFlow that was built for it; on a TPU virtual machine, "
            "TPU_NAME=local. A slice of several machines is used with KERAS_BACKEND=jax and "
            f"`multi_worker`. Received: {str(error).splitlines()[0]}"
        ) from error
    made = tf.distribute.TPUStrategy(resolver)
    if made.extended.num_hosts > 1:
        raise ValueError(
            "`tpu` is for one machine, since data are made in this process; a slice of several is "
            "used with KERAS_BACKEND=jax and `multi_worker`. "
            f"Received: {made.extended.num_hosts} machines."
        )
    patch_fit(made, is_needed=False)
    return made


class DataParallel(keras.distribution.DataParallel):
    """`keras.distribution.DataParallel` with TensorFlow's name for the number of replicas."""

    def __init__(self):
        super().__init__(auto_shard_dataset=False)

    @property
    def num_replicas_in_sync(self):
        return self.num_model_replicas


def _data_parallel():
    made = DataParallel()
    keras.distribution.set_distribution(made)
    return made


def _data_parallel_of_workers():
    _join(workers_from_environment())
    return _data_parallel()


def _join(known):
    """Join the other processes; JAX knows those that `workers_from_environment` has not `known`."""
    if known is None:
        message, arguments = "This worker waits for all others.", ()
    else:
        addresses, index = known
        message = _waiting_message(addresses, index)
        arguments = addresses[0], len(addresses), index
    try:
        with _waiting(message):
            keras.distribution.initialize(*arguments)
    except RuntimeError as error:
        raise ValueError(
            "A strategy of several processes must be made before anything is computed, and all "
            f"processes must begin. Received: {error}"
        ) from error
    except ValueError as error:
        if known is None:
            raise ValueError(MISSING_ENVIRONMENT) from error
        raise


def _model_parallel(**arguments):
    known = workers_from_environment()
    has_others = has_others_for_jax(os.environ) if known is None else len(known[0]) > 1
    if has_others:
        _join(known)
    made = ModelParallel(**arguments)
    keras.distribution.set_distribution(made)
    return made


def _data_parallel_of_tpus():
    try:
        keras.distribution.list_devices("tpu")
    except RuntimeError as error:
        raise ValueError(
            f"`tpu` needs a TPU and a JAX that was installed for it. Received: {error}"
        ) from error
    return _data_parallel()


_KINDS = {"none": _none, "mirrored": _mirrored, "multi_worker": _multi_worker, "tpu": _tpu}
_ON_JAX = {
    "none": OneDevice,
    "mirrored": _data_parallel,
    "multi_worker": _data_parallel_of_workers,
    "tpu": _data_parallel_of_tpus,
}
