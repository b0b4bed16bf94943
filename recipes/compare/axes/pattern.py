"""Causal patterns: what fits the prediction of every token."""

import math

from keras_attn import patterns

from ...common.model_arguments import grid
from ..model import PLAIN, Changes


def values(options):
    """Return the values; sparse ones see a quarter of the context, or its square root."""
    context, part = options.context, max(1, options.context // 4)
    few, stride = max(1, part // 4), max(2, math.isqrt(context))
    rows, columns = grid(context)
    block = max(1, rows // 2), max(1, columns // 2)
    flange = rows // 4, columns // 4
    window = patterns.Local(part)
    dilated = patterns.Dilated(part, 2)
    first = options.num_heads // 2

    def of(pattern):
        return Changes({"pattern": pattern})

    def in_turn(*chosen):
        return Changes(lambda index: {"pattern": chosen[index % len(chosen)]})

    return {
        "causal": PLAIN,
        "local": of(window),
        "dilated": of(dilated),
        "local_dilated_per_head": of(
            patterns.PerHead([window] * first + [dilated] * (options.num_heads - first))
        ),
        "local_global": of(window | patterns.Global(few, causal=True)),
        "local_random": of(window | patterns.Random(few, 2, context, causal=True)),
        "sinks": of(patterns.Sinks(few, part)),
        "block_local_1d": of(patterns.BlockLocal1D(part, part)),
        "block_local_2d": of(patterns.BlockLocal2D((rows, columns), block, flange)),
        "strided": of(patterns.Strided(stride)),
        "strided_in_turn": in_turn(
            patterns.Strided(stride, "local"), patterns.Strided(stride, "column")
        ),
        "fixed": of(patterns.Fixed(stride, max(1, stride // 4))),
        "fixed_in_turn": in_turn(
            patterns.Fixed(stride, max(1, stride // 4), "block"),
            patterns.Fixed(stride, max(1, stride // 4), "summary"),
        ),
        "adaptive_span": of(patterns.AdaptiveSpan(context)),
        "lsh": Changes({"score": "shared_qk", "pattern": patterns.LSH(max(2, part // 2), 2)}),
        "causal_shared_qk": Changes({"score": "shared_qk"}),
    }
