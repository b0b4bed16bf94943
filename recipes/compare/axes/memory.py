"""Memories of earlier segments, all with the relative score."""

from keras_attn import layers, memory

from ..model import Changes

RELATIVE = {"score": "relative", "position": None}


def values(options):
    """Return the values."""
    context, last = options.context, options.num_layers - 1

    def with_search(index):
        if index < last:
            return RELATIVE
        return {**RELATIVE, "layer": layers.KNNAttention, "top_k": 8}

    def of(state, attention=RELATIVE):
        return Changes(attention, memory=state)

    return {
        "none": of(None),
        "segment": of(memory.SegmentMemory(context)),
        "compressive": of(memory.CompressiveMemory(context // 2, context // 2)),
        "knn": of(memory.KNNMemory(8 * context), with_search),
    }
