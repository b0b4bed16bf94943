"""Strategies by name, and the errors of those that are not available."""

import importlib
import os
from concurrent.futures import ThreadPoolExecutor

import keras
import pytest
from other_backend import INSTALLED, needs_jax, run_on

from keras_attn.compat import keras_fit
from keras_attn.distribution import ModelParallel, strategy
from keras_attn.distribution.workers import WORKERS, has_others_for_jax
from keras_attn.models import gpt


def test_none_uses_one_device():
    import tensorflow as tf

    place = strategy("none")
    assert isinstance(place, tf.distribute.Strategy) and place.num_replicas_in_sync == 1
    with place.scope():
        keras.layers.Dense(1).build((None, 2))


def test_mirrored_uses_all_devices():
    import tensorflow as tf

    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    place = strategy("mirrored")
    assert isinstance(place, tf.distribute.MirroredStrategy)
    assert place.num_replicas_in_sync == len(devices)


SHARED = """
import json, os, sys
import tensorflow as tf
from keras_attn.distribution import ModelParallel, strategy

(cpu,) = tf.config.list_physical_devices("CPU")
devices = [tf.config.LogicalDeviceConfiguration()] * os.cpu_count()
tf.config.set_logical_device_configuration(cpu, devices)
threads = tf.config.threading
threads.set_intra_op_parallelism_threads(int(sys.argv[1]))
place, again = strategy("mirrored"), strategy("mirrored")
number = threads.get_intra_op_parallelism_threads()
print(json.dumps([number, place.num_replicas_in_sync == len(devices), place is again]))
"""


@pytest.mark.slow
@pytest.mark.skipif(os.cpu_count() == 1, reason="one core is not shared")
@pytest.mark.parametrize("asked, expected", [(0, 1), (3, 3)])
def test_logical_devices_divide_the_cores_unless_the_program_sets_threads(asked, expected):
    assert run_on("tensorflow", SHARED, asked) == [expected, True, True]


def test_an_unknown_name_raises_with_the_known_names():
    with pytest.raises(ValueError, match=r"'none', 'mirrored', 'multi_worker', 'tpu'.*'gpus'"):
        strategy("gpus")


def test_tensorflow_divides_no_model_among_devices():
    """Keras's own `ModelParallel` would train a whole model there."""
    with pytest.raises(ValueError, match="KERAS_BACKEND=jax.*Received: name='model_parallel'"):
        strategy("model_parallel", data=1, model=1)
    with pytest.raises(ValueError, match="KERAS_BACKEND=jax.*Received: name='model_parallel'"):
        ModelParallel(1, 1)
    mesh = keras.distribution.DeviceMesh((1, 1), ("batch", "model"), ["cpu:0"])
    layout_map = keras.distribution.LayoutMap(mesh)
    place = keras.distribution.ModelParallel(layout_map=layout_map, batch_dim_name="batch")
    with place.scope():
        for make in (lambda: strategy("none"), lambda: gpt(11, 1, 1, 6, 5, max_length=7)):
            with pytest.raises(ValueError, match="On the backend tensorflow .*KERAS_BACKEND=jax"):
                make()


def test_multi_worker_needs_addresses(monkeypatch):
    for name in ("TF_CONFIG", WORKERS, "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="TF_CONFIG"):
        strategy("multi_worker")


@pytest.mark.parametrize(
    "variables, expected",
    [
        ({}, False),
        ({"SLURM_STEP_NUM_TASKS": "1", "TPU_WORKER_HOSTNAMES": "localhost"}, False),
        ({"SLURM_STEP_NUM_TASKS": "2"}, True),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, True),
        ({"TPU_WORKER_HOSTNAMES": "train-0,train-1"}, True),
    ],
)
def test_model_parallel_joins_the_processes_that_a_launcher_has_started(variables, expected):
    assert has_others_for_jax(variables) == expected


def test_tpu_without_a_tpu_raises():
    with pytest.raises(ValueError, match="^`tpu` needs a TPU .*Received: "):
        strategy("tpu")


class Workers:
    """Stands for a strategy of several workers, over which Keras's `fit` does not work."""

    num_replicas_in_sync = 2


@pytest.mark.parametrize("works", [True, False])
def test_an_unknown_version_of_keras_must_train_a_small_model(monkeypatch, works):
    monkeypatch.setattr(keras, "__version__", "3.150.0")
    monkeypatch.setattr(keras_fit, "can_fit", lambda strategy: works)
    trainer = importlib.import_module("keras.src.backend.tensorflow.trainer")
    theirs = trainer.TensorFlowTrainer._maybe_symbolic_build, trainer.reduce_per_replica
    if works:
        keras_fit.patch_fit(Workers(), is_needed=True)
    else:
        with pytest.raises(ValueError, match=r"install keras==3.15.\*. Received: Keras 3.150.0"):
            keras_fit.patch_fit(Workers(), is_needed=True)
        keras_fit.patch_fit(Workers(), is_needed=False)
    assert theirs == (trainer.TensorFlowTrainer._maybe_symbolic_build, trainer.reduce_per_replica)


def test_fit_works_on_one_device():
    assert keras_fit.can_fit(strategy("none"))


ON_ANOTHER = """
import json
from keras_attn.distribution import ModelParallel, strategy
refused = []
for name in {refused}:
    try:
        strategy(name)
    except ValueError as error:
        refused.append(str(error))
with strategy("none").scope():
    print(json.dumps([strategy("none").num_replicas_in_sync, refused]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend, names",
    [("jax", ["gpus", "tpu"]), ("torch", ["gpus", "mirrored", "multi_worker", "tpu"])],
)
def test_strategies_of_other_backends(backend, names):
    if backend not in INSTALLED:
        pytest.skip(f"{backend} is not installed")
    number, refused = run_on(backend, ON_ANOTHER.format(refused=names))
    assert number == 1 and len(refused) == len(names)
    assert "`name` must be one of" in refused[0]
    assert all(name in sentence for name, sentence in zip(names, refused, strict=True))


UNDER_SRUN = """
import json
from keras_attn.distribution import ModelParallel, strategy
import jax

place = strategy("multi_worker")
print(json.dumps([jax.process_index(), jax.process_count(), place.num_replicas_in_sync]))
"""


@pytest.mark.slow
@needs_jax
def test_jax_finds_the_processes_that_srun_starts(monkeypatch):
    """Without TensorFlow, whose resolver reads Slurm's variables otherwise."""
    for name in ("TF_CONFIG", WORKERS):
        monkeypatch.delenv(name, raising=False)
    job = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_NODELIST": "localhost"}
    for name, value in {**job, "SLURM_NTASKS": "2", "XLA_FLAGS": ""}.items():
        monkeypatch.setenv(name, value)

    def task(index):
        return run_on("jax", UNDER_SRUN, SLURM_PROCID=str(index), SLURM_LOCALID=str(index))

    with ThreadPoolExecutor() as threads:
        assert list(threads.map(task, range(2))) == [[0, 2, 2], [1, 2, 2]]
