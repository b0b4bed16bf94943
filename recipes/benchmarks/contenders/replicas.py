"""Training under a strategy."""

from ..workload import SHAPES, Task, translation_batch
from .fit import LEARNING_RATE


def training(strategy, devices, size, batch, length, steps):
    """Optimizer steps of a global batch under `model.fit`, on devices that share the cores."""
    import tensorflow as tf

    logical = [tf.config.LogicalDeviceConfiguration()] * devices
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, logical)
    import keras_attn
    from keras_attn.text.batches.datasets import dataset_of

    vocabulary_size = SHAPES[size].vocabulary_size
    source, target, labels = translation_batch(batch, length, vocabulary_size)
    step = ({"source_ids": source, "target_ids": target}, labels)
    signature = tf.nest.map_structure(lambda x: tf.TensorSpec((None, None), x.dtype), step)
    place = keras_attn.distribution.strategy(strategy)
    with place.scope():
        model = keras_attn.models.create(SHAPES[size].preset, vocabulary_size=vocabulary_size)
        loss = keras_attn.losses.LabelSmoothedCrossentropy(0.1)
        model.compile(keras_attn.optimizers.Adam(LEARNING_RATE), loss, jit_compile=False)
        dataset = dataset_of(lambda rows: (rows.cut(step) for _ in range(steps)), signature, steps)
    return Task(
        call=lambda: model.fit(dataset, epochs=1, verbose=0, shuffle=False),
        units=steps * batch * 2 * length,
        facts={"parameters": model.count_params(), "replicas": place.num_replicas_in_sync},
    )
