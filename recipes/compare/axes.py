"""Values of each axis, as changes of one small model."""

import math

import keras

from keras_attn import (
    depth,
    layers,
    memory,
    models,
    patterns,
    positions,
    registry,
    residuals,
    scores,
)
from keras_attn.ops.shapes import head_size


def build(vocabulary_size, options, **changes):
    """Build a causal language model of pre-norm blocks and learned positions, with changes.

    The changes are `attention`, a dict of arguments of `MultiHeadAttention`; `position`,
    `residual`, `feed_forward` and `memory` of the model; and `depth`, a function of a block's
    function and the number of layers.
    """
    hidden_dim, num_heads = options.hidden_dim, options.num_heads
    feed_forward = changes.get("feed_forward", layers.FeedForward(options.intermediate_dim))

    def block(index):
        attention = {"pattern": "causal", **changes.get("attention", {})}
        attention = {name: _own(value) for name, value in attention.items()}
        return layers.TransformerBlock(
            layers.MultiHeadAttention(num_heads, head_size(hidden_dim, num_heads), **attention),
            _own(feed_forward),
            residual=changes.get("residual", "pre_norm"),
            dropout=options.dropout,
        )

    return models.CausalLanguageModel(
        layers.TokenEmbedding(vocabulary_size, hidden_dim),
        changes.get("depth", depth.Stack)(block, options.num_layers),
        position=changes.get("position", positions.Learned(options.context)),
        memory=changes.get("memory"),
        dropout=options.dropout,
    )


def _own(value):
    """Return a copy of a layer, so that each block has weights of its own."""
    return registry.copy(value) if isinstance(value, keras.layers.Layer) else value


def axes(options):
    """Return the values of each axis by name, as keyword arguments of `build`."""
    context, part = options.context, max(1, options.context // 4)
    stride = max(2, math.isqrt(context))
    rows = next(n for n in range(math.isqrt(context), 0, -1) if context % n == 0)

    def attention(**arguments):
        return {"attention": arguments}

    def in_score(score):
        return {"position": None, **attention(score=score)}

    half = options.hidden_dim // 2
    # As many weights as the plain network, and experts of which two are as wide as it.
    gated, expert = 2 * options.intermediate_dim // 3, max(1, options.intermediate_dim // 2)
    return {
        "score": {
            "scaled_dot": {},
            "dot": attention(score="dot"),
            "additive": attention(score="additive"),
            "relative": in_score("relative"),
            "alibi": in_score(scores.DotProduct() + scores.ALiBi()),
            "t5_bias": in_score(scores.DotProduct(scaled=False) + scores.T5Bias()),
            "soft_cap": attention(score=scores.SoftCap(scores.DotProduct(), 50.0)),
        },
        "pattern": {
            "causal": {},
            "local": attention(pattern=patterns.Local(part)),
            "block_local_1d": attention(pattern=patterns.BlockLocal1D(part, part)),
            "strided": attention(pattern=patterns.Strided(stride)),
            "fixed": attention(pattern=patterns.Fixed(stride, max(1, stride // 4))),
            "adaptive_span": attention(pattern=patterns.AdaptiveSpan(context)),
            "lsh": attention(score="shared_qk", pattern=patterns.LSH(max(2, part // 2), 2)),
        },
        "position": {
            "none": {"position": None},
            "sinusoidal": {"position": "sinusoidal"},
            "learned": {},
            "axial": {
                "position": positions.Axial(
                    (context // rows, rows), (half, options.hidden_dim - half)
                )
            },
            "rotary": {"position": None, **attention(position="rotary")},
            "relative": in_score("relative"),
        },
        "norm": {
            name: {"residual": residuals.PreNorm(norm=name)}
            for name in ("layer_norm", "rms_norm", "dyt", "none")
        },
        "feed_forward": {
            "relu": {},
            "swiglu": {"feed_forward": layers.GatedFeedForward(gated)},
            "geglu": {"feed_forward": layers.GatedFeedForward(gated, "gelu")},
            "experts": {
                "feed_forward": layers.MixtureOfExperts(layers.FeedForward(expert), num_experts=8)
            },
        },
        "residual": {
            "pre_norm": {},
            "post_norm": {"residual": "post_norm"},
            "output_norm": {"residual": residuals.OutputNorm()},
            "sandwich_norm": {"residual": residuals.SandwichNorm()},
            "deep_norm": {"residual": residuals.DeepNorm(options.num_layers)},
            "re_zero": {"residual": residuals.ReZero()},
            "layer_scale": {"residual": residuals.LayerScale()},
            "gru": {"residual": residuals.Gate("gru")},
            **{
                kind: {"residual": residuals.Gate(kind, bias=1.0)}
                for kind in ("input", "output", "highway", "sigmoid_tanh", "sum")
            },
        },
        "depth": {
            "stack": {},
            "recurrent": {"depth": _shared(depth.Recurrent)},
            "act": {"depth": _shared(depth.ACT)},
            "reversible": {"depth": depth.Reversible},
        },
        "memory": {
            "none": in_score("relative"),
            "segment": {**in_score("relative"), "memory": memory.SegmentMemory(context)},
        },
        "loss": {"plain": {}, "label_smoothed": {}, "auxiliary": {}},
    }


def _shared(kind):
    """Return a depth of one block for all steps, with timestep embeddings."""
    return lambda block, steps: kind(block(0), steps, position="timestep")
