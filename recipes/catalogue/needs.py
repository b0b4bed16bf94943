"""The index of the catalogue: needs, and the values that meet them."""

NEEDS = (
    (
        "start with the usual choices",
        "scores.DotProduct patterns.Causal patterns.Dense positions.Learned positions.Sinusoidal "
        "norms.LayerNorm residuals.PreNorm feed_forward.FeedForward depth.Stack",
    ),
    (
        "attend over long sequences",
        "patterns.Local patterns.BlockLocal1D patterns.Strided patterns.Fixed patterns.Dilated "
        "patterns.LSH scores.SharedQK scores.Kernel scores.FAVOR patterns.AdaptiveSpan "
        "depth.Latents "
        "models.sparse_transformer models.reformer models.perceiver",
    ),
    (
        "build a model as of today",
        "norms.RMSNorm feed_forward.GatedFeedForward positions.Rotary residuals.PreNorm "
        "models.llama models.mistral models.gemma models.modern_bert",
    ),
    (
        "read texts longer than those of training with rotary positions",
        "positions.Interpolation positions.NTK positions.YaRN positions.Llama3 positions.LongRoPE",
    ),
    (
        "give some positions the whole of a long text, as Longformer and BigBird do",
        "patterns.Global layers.GlobalAttention patterns.Random patterns.Local patterns.Either",
    ),
    ("read an input in both directions before a text is generated", "patterns.Prefix"),
    ("combine patterns", "patterns.Both patterns.Either patterns.PerHead"),
    ("add a bias to a score", "scores.Sum scores.ALiBi scores.T5Bias scores.SoftCap"),
    (
        "attend to little of a long context",
        "layers.DifferentialAttention patterns.LSH patterns.AdaptiveSpan",
    ),
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
        "patterns.Sinks memory.SegmentMemory memory.CompressiveMemory memory.KNNMemory "
        "memory.StatefulSegments scores.Relative models.transformer_xl "
        "models.compressive_transformer models.adaptive_span_transformer",
    ),
    (
        "generate fast",
        "memory.KVCache patterns.Local scores.Kernel positions.Rotary models.gpt",
    ),
    (
        "work beyond the trained length",
        "scores.ALiBi scores.Relative positions.Rotary positions.Sinusoidal "
        "models.universal_transformer",
    ),
    (
        "model images",
        "patterns.BlockLocal1D patterns.BlockLocal2D patterns.Strided positions.ImageCoordinates "
        "positions.AxialRotary losses.MixtureOfLogistics models.image_transformer "
        "models.sparse_transformer models.super_resolution_transformer generation.SamplePixels",
    ),
    (
        "compute more steps where needed",
        "depth.ACT depth.ACTCell depth.ACTRNN positions.Timestep models.universal_transformer",
    ),
    (
        "train deep stacks",
        "residuals.PreNorm residuals.DeepNorm residuals.ReZero residuals.LayerScale residuals.Gate "
        "losses.AuxiliaryLosses models.deep_char_transformer",
    ),
    (
        "train with large steps or in low precision",
        "residuals.OutputNorm residuals.SandwichNorm scores.Cosine",
    ),
    ("run attention and feed-forward at the same time", "layers.ParallelBlock"),
    ("do without norms", "norms.DyT norms.NoNorm residuals.ReZero"),
    (
        "have more weights at the cost of few",
        "feed_forward.MixtureOfExperts models.mixtral models.gpt_oss models.switch_transformer",
    ),
    ("act with a memory", "models.gtrxl residuals.Gate memory.SegmentMemory"),
    ("learn to act from stored episodes", "models.decision_transformer"),
    ("mix neighbours without attention", "feed_forward.SeparableConvTransition"),
    (
        "translate",
        "models.transformer models.t5 losses.LabelSmoothedCrossentropy residuals.PostNorm",
    ),
    (
        "classify and tag",
        "models.bert models.modern_bert models.longformer models.big_bird "
        "models.vit patterns.Dense scores.Disentangled",
    ),
    ("generate text", "models.gpt models.llama models.transformer_xl models.reformer"),
    ("continue or translate texts in Python", "generation.complete generation.stream"),
    (
        "choose the tokens that are generated",
        "generation.generate generation.Greedy generation.Sample generation.Beam",
    ),
    (
        "keep generated text to rules",
        "generation.Constrained generation.Forbidden generation.Forced generation.NoRepeat",
    ),
    ("let a small model help a large one to generate", "generation.Speculative"),
    (
        "forecast series of numbers, or classify them",
        "models.chronos_bolt models.chronos_t5 generation.forecast generation.sample_paths "
        "models.patch_tst norms.BatchNorm losses.Quantile losses.DistributionLoss",
    ),
    ("learn vectors of pairs", "losses.ContrastiveLoss"),
    ("imitate a larger model", "losses.Distillation"),
    ("predict from a large vocabulary", "layers.AdaptiveSoftmax"),
    ("reproduce attention of recurrent networks", "scores.Additive"),
    (
        "check a layer of your own",
        "testing.check_attention testing.check_layer testing.check_series",
    ),
)
