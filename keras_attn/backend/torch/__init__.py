"""PyTorch implementations of `keras_attn.backend`."""
