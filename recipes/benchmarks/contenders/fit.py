"""Timing `model.fit`: shared by every contender that is a Keras model."""

from ..workload import Task, translation_batch

LEARNING_RATE = 1e-4


def fit_task(model, optimizer, loss, batch, length, steps, vocabulary_size, policy):
    """A `Task` whose call is one `model.fit` of `steps` optimizer steps."""
    import tensorflow as tf

    source, target, labels = translation_batch(batch, length, vocabulary_size)
    step = ({"source_ids": source, "target_ids": target}, labels)
    options = tf.data.Options()
    # With it, `fit` returns only at multiples of 2.5 s, when the autotune thread wakes up.
    options.autotune.enabled = False
    dataset = tf.data.Dataset.from_tensors(step).repeat(steps).with_options(options)
    model.compile(optimizer=optimizer, loss=loss, jit_compile=False)
    return Task(
        call=lambda: model.fit(dataset, epochs=1, verbose=0),
        units=steps * batch * 2 * length,
        facts={"parameters": model.count_params(), "policy": policy},
    )
