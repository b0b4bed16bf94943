"""Windows whose width depends on values: on learned spans, or on the documents in a row."""

import functools

from keras import ops

from keras_attn.attention.block_local import attend_block_local
from keras_attn.ops.shapes import ceil_div, size


def window_reaches(num_keys, most, tile_sizes, least=1):
    """Return the reaches, in keys, of the windows of `attend_by_reach`: each twice the one before.

    The last is `most`, or the first above half of the keys if their number is an int.
    """
    longest = min(most, num_keys // 2) if isinstance(num_keys, int) else most
    reaches, reach = [], 0
    while reach < longest:
        reach = min(max(2 * reach, tile_sizes.least_window, least), most)
        reaches.append(reach)
    return reaches


def attend_by_reach(inputs, window, whole, longest, most, least=1, is_bounded=True):
    """Compute attention by the narrowest window that holds all keys in reach.

    The shape of a window is fixed when a graph is built, but the reach is known only when it runs:
    the graph holds several windows, and chooses one.

    Args:
        window: function of a reach, an int, that returns the results for it.
        whole: function that returns the results of all keys, without a window.
        longest: int32 scalar, the number of keys in reach.
        most, least: ints. Bounds of the windows' reaches.
        is_bounded: bool. True if `longest` is never above `most`.
    """
    num_keys = size(inputs.key, 2)
    reaches = window_reaches(num_keys, most, inputs.tile_sizes, least)
    branches = [functools.partial(window, reach) for reach in reaches]
    chosen = sum(ops.cast(longest > reach, "int32") for reach in reaches)
    if not is_bounded or not isinstance(num_keys, int) or 2 * most > num_keys:
        branches.append(whole)
        chosen = ops.where(2 * longest > num_keys, len(reaches), chosen)
    return branches[0]() if len(branches) == 1 else ops.switch(chosen, branches)


def attend_documents(inputs, allowed, causal, whole, log_weight, most=1024):
    """Compute attention in packed rows by a window as wide as the longest document.

    Time O(T L) for documents of at most L tokens, up to a factor of four that keeps the shapes
    fixed; O(T S) where a document is longer than half of the row, or than `most`. Return the
    output (B, N, T, Hv) and, with `log_weight`, the log weight (B, N, T, 1) or None.

    Args:
        allowed: function of positions as `attend_block_local` takes it, of distances alone.
        causal: bool. If True, no key after its query is allowed.
        whole: function that computes the same from all keys.
    """
    num_keys = size(inputs.key, 2)
    segments = inputs.key_mask[:, 0]
    index = ops.arange(num_keys, dtype="int32")
    longest = 1 + ops.max(ops.where(segments > 0, index - segments + 1, 0))
    results = 2 if log_weight else 1  # `switch` takes tensors only

    def window(reach):
        block = min(reach, inputs.tile_sizes.most_block)
        before = ceil_div(reach - 1, block)
        sizes = block, before, 0 if causal else before
        options = {"repeats": causal, "log_weight": log_weight}
        return attend_block_local(inputs, allowed, *sizes, **options)[:results]

    most = min(most, num_keys) if isinstance(num_keys, int) else most
    found = attend_by_reach(
        inputs,
        window,
        lambda: whole()[:results],
        longest,
        most,
        least=inputs.tile_sizes.most_block,
        is_bounded=False,
    )
    return (*found, None)[:2]
