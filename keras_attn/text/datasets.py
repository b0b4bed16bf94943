"""Batches made in Python as a `tf.data.Dataset`."""


def dataset_of(one_pass, signature, num_batches):
    """A dataset of what the generator function `one_pass` yields, of known cardinality."""
    import tensorflow as tf

    dataset = tf.data.Dataset.from_generator(one_pass, output_signature=signature)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(num_batches)).prefetch(2)
    options = tf.data.Options()
    # The autotuner has nothing to tune here, and `fit` would wait seconds for its thread.
    options.autotune.enabled = False
    return dataset.with_options(options)
