"""The plan of causal attention."""

import math

import keras
from keras import ops

from keras_attn.attention.plans import AllKeys, TileCount
from keras_attn.backend.loops import attend_causal, tile_loops


class CausalKeys(AllKeys):
    """All keys up to the query, for any score.

    Dot products of a known number of positions, in rows of one sequence and without dropout, are
    computed by `attend_causal`, which masks few of the scores.
    """

    def __init__(self, mask_mod):
        super().__init__(mask_mod, causal=True)

    def attend_row(self, inputs, log_weight=False):
        blocks, results = self._blocks(inputs), None
        if blocks is not None:
            scale = inputs.score.kernel_scale(inputs.query.shape[3])
            heads = inputs.query * ops.cast(scale, inputs.query.dtype), inputs.key, inputs.value
            most_scores = inputs.tile_sizes.block_scores
            results = attend_causal(*heads, inputs.key_mask, *blocks, most_scores)
        if results is None:
            return super().attend_row(inputs, log_weight)
        return results[0], results[1] if log_weight else None

    def tiles(self, inputs):
        if self._blocks(inputs) is None:
            return super().tiles(inputs)
        (block, number), most = self._blocks(inputs), inputs.tile_sizes.block_scores
        rows, counts = math.prod(inputs.query.shape[:2]), []
        for n in (0, *range(number)):
            side = length = block * 2**n
            while length > block and length * side > most:
                length //= 2
            count = rows * (2 ** (number - n - 1) if counts else 2**number) * (side // length)
            at_once = max(1, min(count, most // (length * side)))
            counts.append(TileCount(count, at_once, length, side, True))
        return counts

    def extra_products(self, inputs):
        if self._blocks(inputs) is None:
            return super().extra_products(inputs)
        # The backward pass computes the weights again, but not the sums of values.
        pairs = sum(x.number * x.length * x.num_keys for x in self.tiles(inputs))
        return 0, -pairs * inputs.value.shape[3]

    def _blocks(self, inputs):
        """Return the length of a masked block, and how often it is doubled to hold all positions.

        None if the inputs need the loop over tiles.
        """
        query, block = inputs.query, inputs.tile_sizes.most_block
        length, others = query.shape[2], (inputs.documents, inputs.mask_fn, inputs.dropout_fn)
        is_plain = all(x is None for x in others) and tile_loops.are_built
        is_plain = is_plain and inputs.score.kernel_scale(query.shape[3]) is not None
        is_half = keras.backend.standardize_dtype(query.dtype) == "float16"
        has_own = attend_causal.portable is not attend_causal
        if not (has_own and is_plain and length) or length != inputs.key.shape[2] or is_half:
            return None
        if length >= 32 * block:  # each doubling takes a fifth of a second to trace
            block *= 2
        number = max(0, (-(-length // block) - 1).bit_length())
        return -(-length // 2**number), number
