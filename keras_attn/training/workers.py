"""Which of several processes that train one model this one is."""

import contextlib

import keras


def worker_of(model):
    """The index of this process among those that train `model` together, and their number.

    A chief comes first, as TensorFlow counts.
    """
    return worker_under(getattr(model, "distribute_strategy", None))


def worker_under(strategy):
    """The same of what `keras_attn.training.strategy` gives."""
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
