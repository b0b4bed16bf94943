"""The caches of a stack of blocks as one nested cache with one index."""

from keras import tree

from keras_attn.feed_forward import PositionMixer
from keras_attn.memory.kv_cache import KVCache, can_keep_sums


def initial(blocks, batch_size, max_length, whole=True):
    """Return an empty cache: `layers`, the slots of each block's sublayers, and `index`.

    With a `max_length` of None the slots grow, and need no index. Unless it is `whole`, a cache has
    slots for the keys that the patterns need only.
    """
    memory = KVCache(max_length, whole)
    caches = []
    for block in blocks:
        if block.attention is None:
            raise ValueError(
                "A cache needs a `block` with one attention layer, as a `TransformerBlock` has. "
                f"Received: block={block!r}."
            )
        caches.append({"attention": memory.initial(block.attention, batch_size)})
        if isinstance(block.feed_forward, PositionMixer):
            caches[-1]["feed_forward"] = block.feed_forward.initial_cache(batch_size, max_length)
    return join(caches)


def of_context(blocks, context):
    """Return complete cross-attention caches of `context` (B, S, D), one a block."""
    layers = [getattr(block, "cross_attention", None) for block in blocks]
    if None in layers:
        block = type(blocks[layers.index(None)]).__name__
        raise ValueError(
            "`context_cache` needs blocks with `cross_attention`. "
            f"Received: a block of type {block} without it."
        )
    return [layer.context_cache(context) for layer in layers]


def can_be_sums(blocks):
    """Return True if each block can keep sums in place of keys, and no other state by position."""
    return all(
        can_keep_sums(block.attention) and not isinstance(block.feed_forward, PositionMixer)
        for block in blocks
    )


def of_block(number, cache, context_cache):
    """Return the caches of one block by the names of its sublayers."""
    if not isinstance(cache, dict) or "layers" not in cache:
        raise ValueError(
            "`cache` must come from the depth's `initial_cache` or from an earlier call. "
            f"Received: cache={cache!r}."
        )
    index = cache.get("index")
    caches = {name: {**slots, "index": index} for name, slots in cache["layers"][number].items()}
    if context_cache is not None:
        caches["cross_attention"] = context_cache[number]
    return caches


def join(caches):
    """Join the caches of all blocks, without the complete ones, which have no index."""
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


def rewind(cache, count):
    """Return a cache of all blocks that is cut back to its first `count` slots."""
    if "index" in cache:
        return {**cache, "index": count}
    return tree.map_structure(lambda slots: slots[:, :, :count], cache)
