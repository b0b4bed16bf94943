"""Floor 0: pure functions on tensors, without weights."""

from keras_attn.ops.cache import extend_cache, write_slots
from keras_attn.ops.heads import merge_heads, split_heads
from keras_attn.ops.masks import combine_masks, keras_mask
from keras_attn.ops.sinusoids import sinusoids
from keras_attn.ops.softmax import attend

__all__ = [
    "attend",
    "combine_masks",
    "extend_cache",
    "keras_mask",
    "merge_heads",
    "sinusoids",
    "split_heads",
    "write_slots",
]
