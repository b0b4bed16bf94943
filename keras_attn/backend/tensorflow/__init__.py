"""TensorFlow implementations of `keras_attn.backend`."""
