"""The caches of a stack of blocks as one, which counts once what is filled in all."""

from keras_attn.memory.kv_cache import KVCache


def initial(blocks, batch_size, max_length):
    """The empty cache: `layers`, the slots of each block's sublayers, and `index`.

    With a `max_length` of None the slots grow, and need no count.
    """
    # Whole, since prompts of different length and beams say where each key stands.
    memory = KVCache(max_length, whole=True)
    return joined([_of_sublayers(block, memory, batch_size) for block in blocks])


def of_block(number, cache, context_cache):
    """What a block gets: caches by the names of its sublayers."""
    index = cache.get("index")
    caches = {name: {**slots, "index": index} for name, slots in cache["layers"][number].items()}
    if context_cache is not None:
        caches["cross_attention"] = context_cache[number]
    return caches


def joined(caches):
    """The cache of all blocks, from those of each; what is complete without an index is left out."""
    index = caches[0]["attention"]["index"]
    layers = [
        {
            name: {key: slots for key, slots in cache.items() if key != "index"}
            for name, cache in block.items()
            if "index" in cache
        }
        for block in caches
    ]
    return {"layers": layers} if index is None else {"index": index, "layers": layers}


def _of_sublayers(block, memory, batch_size):
    caches = {"attention": memory.initial(block.attention, batch_size)}
    between = getattr(block, "feed_forward", None)
    if getattr(between, "mixes_positions", False):
        caches["feed_forward"] = between.initial_cache(batch_size, memory.max_length)
    return caches
