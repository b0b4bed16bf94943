"""Memory axis: what survives a call."""

from keras_attn.memory.kv_cache import KVCache

__all__ = ["KVCache"]
