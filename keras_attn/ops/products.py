"""The two products of attention.

With one query, as in decoding, they are sums over a cache whose length differs at every step.
TensorFlow's batched product sets up a kernel for each new length, which takes longer than the
product; its einsum has nothing to set up, and under XLA it spares a transposed copy of the keys.
"""

from keras import backend, ops


def query_keys(query, key):
    """query (B, N, T, H), key (B, N, S, H) -> dot products (B, N, T, S), float32 from float16.

    A dot product of float16 may be too large for float16.
    """
    if backend.standardize_dtype(query.dtype) == "float16":
        query, key = ops.cast(query, "float32"), ops.cast(key, "float32")
    if query.shape[2] == 1:
        logits = ops.einsum("bnh,bnsh->bns", ops.squeeze(query, 2), key)
        return ops.expand_dims(logits, 2)
    return ops.matmul(query, ops.swapaxes(key, -1, -2))


def weights_values(weights, value):
    """weights (B, N, T, S), value (B, N, S, H) -> weighted sums (B, N, T, H)."""
    if weights.shape[2] == 1:
        output = ops.einsum("bns,bnsh->bnh", ops.squeeze(weights, 2), value)
        return ops.expand_dims(output, 2)
    return ops.matmul(weights, value)
