"""Single tensor operations on JAX."""

import functools

import jax
from keras import ops


def is_symbolic(x):
    return isinstance(x, jax.core.Tracer)


def has_fused_attention(query, key, value):
    """cuDNN's kernel, on a GPU."""
    if jax.default_backend() != "gpu" or value.shape[-1] != key.shape[-1]:
        return False
    # JAX checks this in the backward pass only, when it is too late for another choice.
    if query.shape[2] % 2 or key.shape[2] % 2:
        return False
    return _has_kernel(*((x.shape, str(x.dtype)) for x in (query, key, value)))


@functools.lru_cache(maxsize=1024)
def _has_kernel(*shapes):
    """Ask Keras, JAX and cuDNN by shapes; nothing is computed."""
    tensors = [jax.ShapeDtypeStruct((b, t, n, h), dtype) for (b, n, t, h), dtype in shapes]
    try:
        jax.eval_shape(functools.partial(ops.dot_product_attention, flash_attention=True), *tensors)
    except (ImportError, RuntimeError, TypeError, ValueError):  # no kernel, or not for such tensors
        return False
    return True
