"""Worker processes: their addresses, the index of this one, and the failure of another."""

import json
import os
import re
import sys

import keras

# The list of all processes, for schedulers that give a process its number only.
WORKERS = "KERAS_ATTN_WORKERS"

MISSING_ENVIRONMENT = (
    "`multi_worker` must know all processes and which one this is: set TF_CONFIG, as "
    '\'{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", '
    '"index": 0}}\'; or start it by `srun`; or, in a Kubernetes indexed Job or StatefulSet, set '
    f"{WORKERS} to host0:2222,host1:2222 in every pod. Received: none of them."
)


def workers():
    """Return the addresses "host:port" of all processes, a list, and the index of this one.

    The first of these sources that exists is used: `TF_CONFIG`; the list `KERAS_ATTN_WORKERS`, with
    the number that Kubernetes gives the pods of an indexed Job (`JOB_COMPLETION_INDEX`) or with
    which the name of a StatefulSet's pod ends (`HOSTNAME`); the variables that `srun` sets.
    On JAX only the first two are read: JAX itself knows `srun` and other launchers.

    Raises:
        ValueError: if none of them exists, or it is malformed.
    """
    known = workers_from_environment() or _slurm(os.environ)
    if known is None:
        raise ValueError(MISSING_ENVIRONMENT)
    return known


def workers_from_environment():
    """Return the result of `workers` from what a user or a pod sets; None without it."""
    known = _tf_config(os.environ) or _kubernetes(os.environ)
    return known and _checked(*known)


def has_others_for_jax(environment):
    """Return True if JAX finds other processes in what `srun`, `mpirun` or a TPU slice sets.

    Of slices these are the ones in Kubernetes; others are known only by asking their network.
    """
    counts = [environment.get(n, "1") for n in ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")]
    return counts != ["1", "1"] or "," in environment.get("TPU_WORKER_HOSTNAMES", "")


def _tf_config(environment):
    text = environment.get("TF_CONFIG")
    if not text:
        return None
    try:
        config = json.loads(text)
        cluster, task = dict(config["cluster"]), config["task"]
        kind, index = task["type"], int(task["index"])
        if any(isinstance(hosts, str) for hosts in cluster.values()):
            raise TypeError("no list of addresses")
        jobs = {job: list(hosts) for job, hosts in cluster.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            "TF_CONFIG must be JSON with `cluster`, lists of addresses, and `task` with `type` and "
            f"`index`. Received: {text!r} ({type(error).__name__}: {error})."
        ) from None
    if "ps" in jobs or kind == "ps":
        raise ValueError(
            "Parameter servers are not supported: Keras's `fit` cannot run on them. Give TF_CONFIG "
            f"a cluster of `worker`s, which all train alike. Received: {sorted(jobs)}."
        )
    # TensorFlow calls the first worker the chief in some clusters.
    chiefs = jobs.pop("chief", [])
    addresses = [*chiefs, *jobs.pop("worker", [])]
    if jobs or kind not in ("chief", "worker"):
        raise ValueError(
            "TF_CONFIG must have `worker`s only, and at most a `chief`: evaluation is part of "
            f"`fit`. Received: a task of type {kind!r} in a cluster of {sorted(cluster)}."
        )
    return addresses, index + (len(chiefs) if kind == "worker" else 0)


def _slurm(environment):
    if "SLURM_STEP_NUM_TASKS" not in environment or "SLURM_PROCID" not in environment:
        return None  # not started by `srun`: a batch script's own shell has a job but no step
    if int(environment["SLURM_STEP_NUM_TASKS"]) == 1:
        return ["localhost:8888"], 0
    import tensorflow as tf

    # Slurm divides the GPUs of a node by CUDA_VISIBLE_DEVICES itself. The resolver numbers ports by
    # GPUs, which it would count by `nvidia-smi`: 1024 are more than the tasks of any node.
    resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
        gpus_per_node=1024, gpus_per_task=1, auto_set_gpu=False
    )
    return resolver.cluster_spec().as_dict()["worker"], resolver.task_id


def _kubernetes(environment):
    addresses = environment.get(WORKERS)
    if not addresses:
        return None
    index = environment.get("JOB_COMPLETION_INDEX")
    if index is None:
        name = environment.get("HOSTNAME", "")
        ending = re.search(r"-(\d+)$", name)
        if ending is None:
            raise ValueError(
                f"Beside {WORKERS} the process must have a number: JOB_COMPLETION_INDEX, or a "
                f"HOSTNAME that ends with it, as train-0. Received: HOSTNAME={name!r}."
            )
        index = ending[1]
    elif not index.isdecimal():
        raise ValueError(f"JOB_COMPLETION_INDEX must be a number. Received: {index!r}.")
    return [address.strip() for address in addresses.split(",")], int(index)


def _checked(addresses, index):
    malformed = [a for a in addresses if not re.fullmatch(r"[^\s:,]+:\d+|\[[0-9a-fA-F:]+\]:\d+", a)]
    if malformed or len(set(addresses)) < len(addresses):
        raise ValueError(
            "The processes' addresses must be host:port and differ from each other. "
            f"Received: {addresses}."
        )
    if not 0 <= index < len(addresses):
        raise ValueError(
            "A process's number must be one of those of the processes, from 0. "
            f"Received: {index}, with {len(addresses)} addresses."
        )
    return addresses, index


def worker_of(model):
    """Return the index of this process among those that train `model`, and their number."""
    return worker_of_strategy(getattr(model, "distribute_strategy", None))


def worker_of_strategy(strategy):
    """Return the same as `worker_of` for a result of `keras_attn.distribution.strategy`."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.process_index(), jax.process_count()
    if keras.backend.backend() != "tensorflow":
        return 0, 1
    import tensorflow as tf

    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 0, 1
    resolver = strategy.cluster_resolver
    tasks = resolver.cluster_spec().as_dict()
    chiefs, others = len(tasks.get("chief", [])), len(tasks.get("worker", []))
    # A chief comes first, as in TensorFlow.
    first = chiefs if resolver.task_type == "worker" else 0
    return first + (resolver.task_id or 0), max(chiefs + others, 1)


# Messages of TensorFlow 2.21 and JAX 0.10 when a collective or the coordination service fails.
_FAILURES = ("Collective ops is aborted", "coordination service", "heartbeat", "Gloo ")


def worker_failure_message(error):
    """Return a message if `error` means that another worker is gone; None for any other error.

    Under the strategy `multi_worker` all processes take each step together, so one that dies stops
    the others. TensorFlow 2.21 raises `tf.errors.UnavailableError` in `fit`, at once or some
    seconds after the last heartbeat, seldom `AbortedError`, `InternalError` or `CancelledError`.
    JAX raises `JaxRuntimeError` or `ValueError`; if the first process is gone it aborts the others
    itself. Such a process can neither train on nor join a new run. End it by `os._exit`, because
    both backends wait for the other processes at a normal exit, and with an exit code on which the
    scheduler restarts all workers.

    Args:
        error: exception that `fit`, `evaluate` or `predict` raised.

    Example:
        >>> from keras_attn.distribution import worker_failure_message
        >>> worker_failure_message(ValueError("no such file")) is None
        True
    """
    if not isinstance(error, _failure_types()) or not any(f in str(error) for f in _FAILURES):
        return None
    return (
        "Another worker of this run is gone: it or its network failed. Start all workers again "
        "with the same commands; training resumes from the last checkpoint."
    )


def _failure_types():
    # The backend has been imported if it raised the error.
    backend = keras.backend.backend()
    errors = getattr(sys.modules.get(backend), "errors", None)
    if errors is None:
        return ()
    if backend == "jax":
        return (errors.JaxRuntimeError, ValueError)
    names = ("UnavailableError", "AbortedError", "InternalError", "CancelledError")
    return tuple(getattr(errors, name) for name in names)
