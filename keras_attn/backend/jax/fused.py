"""Which tensors the fused attention of JAX takes: cuDNN's, on a GPU."""

import functools

from keras import ops

# What Keras and JAX raise where there is no such kernel, or not for such tensors.
REFUSALS = (ImportError, RuntimeError, TypeError, ValueError)


def takes(query, key, value):
    """Whether it computes (B, N, T, H), (B, N, S, H) and (B, N, S, Hv), backward pass included."""
    import jax

    if jax.default_backend() != "gpu" or value.shape[-1] != key.shape[-1]:
        return False
    # JAX asks this of the backward pass only, when it is too late for another choice.
    if query.shape[2] % 2 or key.shape[2] % 2:
        return False
    return _takes(*((x.shape, str(x.dtype)) for x in (query, key, value)))


@functools.lru_cache(maxsize=1024)
def _takes(*shapes):
    """Asks Keras, which asks JAX and cuDNN, and computes nothing."""
    import jax

    tensors = [
        jax.ShapeDtypeStruct((batch, length, heads, size), dtype)
        for (batch, heads, length, size), dtype in shapes
    ]
    try:
        jax.eval_shape(functools.partial(ops.dot_product_attention, flash_attention=True), *tensors)
    except REFUSALS:
        return False
    return True
