"""A model's outputs for one batch after another, on any backend and under any strategy."""

import keras


def compiled(model):
    """Return a compiled function of the model's inputs."""
    if keras.backend.backend() != "tensorflow":
        return model.predict_on_batch
    import tensorflow as tf

    # Not `predict_on_batch`: under a strategy each replica would return all rows.
    run = tf.function(
        lambda inputs: model(inputs, training=False), autograph=False, reduce_retracing=True
    )
    return lambda inputs: run(tf.nest.map_structure(tf.convert_to_tensor, inputs))
