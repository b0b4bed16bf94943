"""Random numbers that are drawn before a loop."""

import keras


def uniform(shape, seed=None):
    """Uniform numbers between 0 and 1: the same for the same seed, in a graph and under XLA too."""
    if keras.backend.backend() != "tensorflow":
        return keras.random.uniform(shape, seed=seed)
    # Keras's global seed is a variable, which an exported graph must not capture, and its
    # seeded numbers differ under XLA.
    import tensorflow as tf

    if seed is None:
        return tf.random.uniform(shape)
    return tf.random.stateless_uniform(shape, seed=(seed, 0), alg="philox")
