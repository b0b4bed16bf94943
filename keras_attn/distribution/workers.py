"""Which process of several this one is, read from the environment that a scheduler gives."""

import contextlib
import json
import os
import re

import keras

# The list of all processes, where the scheduler gives a process its number only.
WORKERS = "KERAS_ATTN_WORKERS"

WHAT_TO_SET = (
    "`multi_worker` must know all processes and which one this is: set TF_CONFIG, as "
    '\'{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", '
    '"index": 0}}\'; or start it by `srun`; or, in a Kubernetes indexed Job or StatefulSet, set '
    f"{WORKERS} to host0:2222,host1:2222 in every pod. Received: none of them."
)


def workers():
    """The addresses of all processes and the number of this one.

    The first of these that is there counts: `TF_CONFIG`; the list `KERAS_ATTN_WORKERS`, with the
    number that Kubernetes gives the pods of an indexed Job (`JOB_COMPLETION_INDEX`) or with which
    the name of a StatefulSet's pod ends (`HOSTNAME`); the variables that `srun` sets.

    On JAX only the first two are asked for: launchers, `srun` among them, are known to JAX itself.

    Returns:
        `(addresses, index)`, a list of "host:port" and an int.

    Raises:
        ValueError: if there is none of them, or it makes no sense.
    """
    found = workers_from_environment()
    if found is None:
        found = _slurm(os.environ)
    if found is None:
        raise ValueError(WHAT_TO_SET)
    return found


def workers_from_environment():
    """As `workers`, from the variables that a user or a pod's description sets; None without."""
    for read in (_tf_config, _kubernetes):
        found = read(os.environ)
        if found is not None:
            return _checked(*found)
    return None


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
    # A chief is the first worker by another name; TensorFlow so calls it where there is one.
    addresses = [*jobs.pop("chief", []), *jobs.pop("worker", [])]
    if jobs or kind not in ("chief", "worker"):
        raise ValueError(
            "TF_CONFIG must have `worker`s only, and at most a `chief`: evaluation is part of "
            f"`fit`. Received: a task of type {kind!r} in a cluster of {sorted(cluster)}."
        )
    return addresses, index + (kind == "worker" and "chief" in cluster)


def _slurm(environment):
    if "SLURM_STEP_NUM_TASKS" not in environment or "SLURM_PROCID" not in environment:
        return None  # not started by `srun`: a batch script's own shell has a job but no step
    if int(environment["SLURM_STEP_NUM_TASKS"]) == 1:
        return ["localhost:8888"], 0
    import tensorflow as tf

    # What the graphics cards of a node are shared out by is Slurm's own CUDA_VISIBLE_DEVICES.
    resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
        gpus_per_node=_LARGE, gpus_per_task=1, auto_set_gpu=False
    )
    return resolver.cluster_spec().as_dict()["worker"], resolver.task_id


# More than a node has tasks: the resolver counts cards, by `nvidia-smi`, to number ports by them.
_LARGE = 1 << 10


def _kubernetes(environment):
    addresses = environment.get(WORKERS)
    if not addresses:
        return None
    index = environment.get("JOB_COMPLETION_INDEX")
    if index is not None and not index.isdecimal():
        raise ValueError(f"JOB_COMPLETION_INDEX must be a number. Received: {index!r}.")
    if index is None:
        name = environment.get("HOSTNAME", "")
        ending = re.search(r"-(\d+)$", name)
        if ending is None:
            raise ValueError(
                f"Beside {WORKERS} the process must have a number: JOB_COMPLETION_INDEX, or a "
                f"HOSTNAME that ends with it, as train-0. Received: HOSTNAME={name!r}."
            )
        index = ending[1]
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
    """The index of this process among those that train `model` together, and their number.

    A chief comes first, as TensorFlow counts.
    """
    return worker_under(getattr(model, "distribute_strategy", None))


def worker_under(strategy):
    """The same of what `keras_attn.distribution.strategies` gives."""
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
    index = resolver.task_id or 0
    if resolver.task_type == "worker":
        index += chiefs
    return index, max(chiefs + others, 1)


def suffix_of(worker, workers):
    """What names the files of one of several workers in a directory of all."""
    return f"-worker-{worker}-of-{workers}" if workers > 1 else ""


def scope_of(model):
    """Where variables that belong to `model` are made."""
    if keras.backend.backend() != "tensorflow":
        return contextlib.nullcontext()
    return model.distribute_strategy.scope()
