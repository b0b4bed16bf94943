"""JAX implementations of `keras_attn.backend`."""
