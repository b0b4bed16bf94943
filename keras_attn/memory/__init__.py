"""Memory axis: the state between calls."""

from keras_attn.memory.compressive_memory import CompressiveMemory
from keras_attn.memory.knn_memory import KNNMemory
from keras_attn.memory.kv_cache import KVCache
from keras_attn.memory.memory import Memory
from keras_attn.memory.segment_memory import SegmentMemory
from keras_attn.memory.stateful_segments import StatefulSegments

__all__ = [
    "CompressiveMemory",
    "KNNMemory",
    "KVCache",
    "Memory",
    "SegmentMemory",
    "StatefulSegments",
]
