"""The index of the catalogue: needs, and the values that meet them."""

NEEDS = (
    (
        "start with the usual choices",
        "scores.DotProduct patterns.Causal patterns.Dense positions.Learned positions.Sinusoidal "
        "residuals.PreNorm feed_forward.FeedForward depth.Stack",
    ),
    (
        "attend over long sequences",
        "patterns.Local patterns.BlockLocal1D patterns.Strided patterns.Fixed patterns.LSH "
        "scores.SharedQK patterns.AdaptiveSpan models.sparse_transformer models.reformer",
    ),
    ("combine patterns", "patterns.Both patterns.Either patterns.PerHead"),
    (
        "learn how far each head looks",
        "patterns.AdaptiveSpan scores.LearnedRelative models.adaptive_span_transformer",
    ),
    (
        "train in little memory",
        "depth.Reversible depth.Stack feed_forward.FeedForward layers.AdaptiveSoftmax "
        "models.reformer",
    ),
    (
        "use few weights",
        "depth.Recurrent positions.Axial layers.AdaptiveSoftmax models.universal_transformer",
    ),
    (
        "read a stream, or a text in segments",
        "memory.SegmentMemory memory.StatefulSegments scores.Relative models.transformer_xl "
        "models.adaptive_span_transformer",
    ),
    ("generate fast", "memory.KVCache patterns.Local positions.Rotary models.gpt"),
    (
        "work beyond the trained length",
        "scores.Relative positions.Rotary positions.Sinusoidal models.universal_transformer",
    ),
    (
        "model images",
        "patterns.BlockLocal1D patterns.BlockLocal2D patterns.Strided positions.ImageCoordinates "
        "losses.MixtureOfLogistics models.image_transformer models.sparse_transformer "
        "models.super_resolution_transformer",
    ),
    (
        "compute more steps where needed",
        "depth.ACT depth.ACTCell depth.ACTRNN positions.Timestep models.universal_transformer",
    ),
    (
        "train deep stacks",
        "residuals.PreNorm residuals.Gate losses.AuxiliaryLosses models.deep_char_transformer",
    ),
    ("act with a memory", "models.gtrxl residuals.Gate memory.SegmentMemory"),
    ("mix neighbours without attention", "feed_forward.SeparableConvTransition"),
    ("translate", "models.transformer losses.LabelSmoothedCrossentropy residuals.PostNorm"),
    ("classify and tag", "models.bert patterns.Dense"),
    ("generate text", "models.gpt models.transformer_xl models.reformer"),
    ("predict from a large vocabulary", "layers.AdaptiveSoftmax"),
    ("reproduce attention of recurrent networks", "scores.Additive"),
    (
        "check a layer of your own",
        "testing.check_attention testing.check_layer",
    ),
)
