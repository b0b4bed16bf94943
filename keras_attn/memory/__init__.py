"""Memory axis: the state between calls."""

from keras_attn.memory.compressive_memory import CompressiveMemory
from keras_attn.memory.kv_cache import KVCache
from keras_attn.memory.segment_memory import KNNMemory, Memory, SegmentMemory
from keras_attn.memory.stateful_segments import StatefulSegments

__all__ = [
    "CompressiveMemory",
    "KNNMemory",
    "KVCache",
    "Memory",
    "SegmentMemory",
    "StatefulSegments",
]
