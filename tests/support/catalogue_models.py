"""A tiny model with each value of the catalogue, by the value's name in keras_attn."""

import keras
import numpy as np

from keras_attn import (
    depth,
    feed_forward,
    layers,
    losses,
    memory,
    models,
    patterns,
    positions,
    residuals,
    scores,
)

V, D, LENGTH = 11, 8, 12
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": D, "intermediate_dim": 11, "dropout": 0.0}


def block(score="scaled_dot", pattern="causal", position=None, residual="post_norm", feed=None):
    attention = layers.MultiHeadAttention(2, 4, score=score, pattern=pattern, position=position)
    feed = layers.FeedForward(11) if feed is None else feed
    return layers.TransformerBlock(attention, feed, residual=residual)


def parallel_block():
    attention = layers.MultiHeadAttention(2, 4, pattern="causal")
    return layers.ParallelBlock(attention, layers.FeedForward(11))


def turned(scaling):
    return block(position=positions.Rotary(scaling=scaling))


def causal_model(depth_=None, position="sinusoidal", memory=None, head=None):
    embedding = layers.TokenEmbedding(V, D) if head is None else None
    depth_ = depth.Stack([block()]) if depth_ is None else depth_
    return models.CausalLanguageModel(embedding, depth_, position, memory, head=head)


def masked_model(*blocks):
    embedding = layers.TokenEmbedding(V, D)
    return models.MaskedLanguageModel(
        embedding,
        "sinusoidal",
        layers.SegmentEmbedding(2),
        keras.layers.LayerNormalization(),
        depth.Stack(blocks, name="encoder"),
        layers.MaskedTokenHead(embedding),
    )


def rnn_model(layer):
    states = keras.Input((None, 4), name="states")
    return keras.Model({"states": states}, layer(states))


def act_cell():
    return depth.ACTCell(keras.layers.SimpleRNNCell(5), max_steps=3)


def relative_stack():
    return depth.Stack([block(score="relative")])


def knn_block():
    attention = layers.KNNAttention(2, 4, top_k=3, score="relative", pattern="causal")
    return layers.TransformerBlock(attention, layers.FeedForward(11))


def adaptive_softmax():
    return layers.AdaptiveSoftmax(layers.AdaptiveEmbedding(V, D, [4]))


# Values that are a part of a block, all of which fit into one stack.
BLOCKS = {
    "scores.ALiBi": lambda: block(score=scores.DotProduct() + scores.ALiBi()),
    "scores.Additive": lambda: block(score="additive"),
    "scores.Cosine": lambda: block(score=scores.Cosine()),
    "scores.Disentangled": lambda: block(score=scores.Disentangled(4, 9)),
    "scores.DotProduct": block,
    "layers.DifferentialAttention": lambda: layers.TransformerBlock(
        layers.DifferentialAttention(2, 4, 0, pattern="causal"), layers.FeedForward(11)
    ),
    "scores.FAVOR": lambda: block(score=scores.FAVOR(5)),
    "scores.Kernel": lambda: block(score=scores.Kernel()),
    "scores.LearnedRelative": lambda: block(score=scores.LearnedRelative(6)),
    "scores.Relative": lambda: block(score="relative"),
    "scores.SharedQK": lambda: block(score="shared_qk"),
    "scores.SoftCap": lambda: block(score=scores.SoftCap(scores.DotProduct(), 3.0)),
    "scores.Sum": lambda: block(score=scores.DotProduct() + scores.ALiBi() + scores.T5Bias(4, 9)),
    "scores.T5Bias": lambda: block(score=scores.DotProduct() + scores.T5Bias(4, 9)),
    "patterns.AdaptiveSpan": lambda: block(pattern=patterns.AdaptiveSpan(4, ramp=2)),
    "patterns.BlockLocal1D": lambda: block(pattern=patterns.BlockLocal1D(2, lookback=1)),
    "patterns.BlockLocal2D": lambda: block(pattern=patterns.BlockLocal2D((8, 8), (2, 2), (1, 1))),
    "patterns.Both": lambda: block(pattern=patterns.Local(4) & patterns.Strided(2)),
    "patterns.Causal": block,
    "patterns.Dense": lambda: block(pattern="dense"),
    "patterns.Dilated": lambda: block(pattern=patterns.Dilated(2, 2)),
    "patterns.Either": lambda: block(pattern=patterns.Local(2) | patterns.Strided(3, "column")),
    "patterns.Fixed": lambda: block(pattern=patterns.Fixed(3, summary=1)),
    "patterns.Global": lambda: block(pattern=patterns.Local(2) | patterns.Global(2, causal=True)),
    "patterns.LSH": lambda: block(score="shared_qk", pattern=patterns.LSH(2)),
    "patterns.Local": lambda: block(pattern=patterns.Local(2)),
    "patterns.PerHead": lambda: block(
        pattern=patterns.PerHead([patterns.Local(2), patterns.Causal()])
    ),
    "patterns.Prefix": lambda: block(pattern=patterns.Prefix(3) & "causal"),
    "patterns.Random": lambda: block(pattern=patterns.Random(2, 1, 64, causal=True)),
    "patterns.Sinks": lambda: block(pattern=patterns.Sinks(1, 3), position="rotary"),
    "patterns.Strided": lambda: block(pattern=patterns.Strided(2)),
    "positions.AxialRotary": lambda: block(position=positions.AxialRotary((8, 8))),
    "positions.Interpolation": lambda: turned(positions.Interpolation(2)),
    "positions.Llama3": lambda: turned(positions.Llama3(2, 16)),
    "positions.LongRoPE": lambda: turned(positions.LongRoPE(2, 16, [1.0, 2.0])),
    "positions.NTK": lambda: turned(positions.NTK(2)),
    "positions.Rotary": lambda: block(position="rotary"),
    "positions.YaRN": lambda: turned(positions.YaRN(2, 16)),
    "norms.BatchNorm": lambda: block(residual=residuals.PreNorm(norm="batch_norm")),
    "norms.DyT": lambda: block(residual=residuals.PreNorm(norm="dyt")),
    "norms.LayerNorm": block,
    "norms.NoNorm": lambda: block(residual=residuals.PreNorm(norm="none")),
    "norms.RMSNorm": lambda: block(residual=residuals.PreNorm(norm="rms_norm")),
    "residuals.DeepNorm": lambda: block(residual=residuals.DeepNorm(1)),
    "residuals.LayerScale": lambda: block(residual=residuals.LayerScale(0.1)),
    "residuals.OutputNorm": lambda: block(residual="output_norm"),
    "residuals.ReZero": lambda: block(residual="re_zero"),
    "residuals.SandwichNorm": lambda: block(residual="sandwich_norm"),
    "layers.ParallelBlock": parallel_block,
    "residuals.Gate": lambda: block(residual="gate"),
    "residuals.PostNorm": block,
    "residuals.PreNorm": lambda: block(residual="pre_norm"),
    "feed_forward.FeedForward": block,
    "feed_forward.GatedFeedForward": lambda: block(feed=feed_forward.GatedFeedForward(11)),
    "feed_forward.MixtureOfExperts": lambda: block(
        feed=feed_forward.MixtureOfExperts(feed_forward.GatedFeedForward(11), 3, 2)
    ),
    "feed_forward.SeparableConvTransition": lambda: block(
        feed=feed_forward.SeparableConvTransition(11, causal=True)
    ),
}
MODELS = {
    "positions.Axial": lambda: causal_model(position=positions.Axial((8, 8), (4, 4))),
    "positions.ImageCoordinates": lambda: causal_model(
        position=positions.ImageCoordinates(3, 4, 1)
    ),
    "positions.Learned": lambda: causal_model(position=positions.Learned(64)),
    "positions.Sinusoidal": causal_model,
    "positions.Timestep": lambda: causal_model(
        depth.Recurrent(block(), 2, position="timestep"), position=None
    ),
    "depth.ACT": lambda: causal_model(depth.ACT(block(), max_steps=3)),
    "depth.ACTCell": lambda: rnn_model(keras.layers.RNN(act_cell(), return_sequences=True)),
    "depth.ACTRNN": lambda: rnn_model(depth.ACTRNN(act_cell(), return_sequences=True)),
    "depth.Latents": lambda: models.perceiver(V, **SIZES, num_latents=3, max_length=16),
    "depth.Recurrent": lambda: causal_model(depth.Recurrent(block(), 2)),
    "depth.Reversible": lambda: causal_model(depth.Reversible([block(residual="pre_norm")])),
    "depth.Stack": causal_model,
    "memory.KVCache": causal_model,
    "memory.CompressiveMemory": lambda: causal_model(
        relative_stack(), None, memory.CompressiveMemory(5, 4, rate=2)
    ),
    "memory.KNNMemory": lambda: causal_model(
        depth.Stack([knn_block()]), None, memory.KNNMemory(12)
    ),
    "memory.SegmentMemory": lambda: causal_model(relative_stack(), None, memory.SegmentMemory(12)),
    "memory.StatefulSegments": lambda: memory.StatefulSegments(
        causal_model(relative_stack(), None, memory.SegmentMemory(12)), batch_size=2
    ),
    "layers.GlobalAttention": lambda: models.longformer(
        V, **SIZES, max_length=16, window=4, num_global=2, global_projections=True
    ),
    "layers.AdaptiveSoftmax": lambda: causal_model(head=adaptive_softmax()),
    "models.adaptive_span_transformer": lambda: models.adaptive_span_transformer(
        V, **SIZES, max_span=6
    ),
    "models.bert": lambda: models.bert(V, **SIZES, max_length=16),
    "models.big_bird": lambda: models.big_bird(V, **SIZES, max_length=16, block_length=2),
    "models.chronos_bolt": lambda: models.chronos_bolt(
        **SIZES, context_length=LENGTH, prediction_length=5, patch_length=4
    ),
    "models.chronos_t5": lambda: models.chronos_t5(**SIZES, bins=layers.SeriesBins(V)),
    "models.compressive_transformer": lambda: models.compressive_transformer(
        V, **SIZES, memory_length=6, rate=2
    ),
    "models.decision_transformer": lambda: models.decision_transformer(4, 4, **SIZES, max_steps=12),
    "models.deep_char_transformer": lambda: models.deep_char_transformer(V, **SIZES, max_length=16),
    "models.gpt": lambda: models.gpt(V, **SIZES, max_length=16),
    "models.gemma": lambda: models.gemma(V, **{**SIZES, "num_layers": 2}, window=4),
    "models.gpt_oss": lambda: models.gpt_oss(
        V, **{**SIZES, "num_layers": 2}, key_dim=4, window=4, num_experts=5
    ),
    "models.gtrxl": lambda: models.gtrxl(4, {"policy": 4}, **SIZES, memory_length=12),
    "models.image_transformer": lambda: models.image_transformer(V, (3, 4, 1), **SIZES),
    "models.llama": lambda: models.llama(V, **SIZES),
    "models.longformer": lambda: models.longformer(V, **SIZES, max_length=16, window=4),
    "models.mistral": lambda: models.mistral(V, **SIZES, window=4),
    "models.mixtral": lambda: models.mixtral(V, **SIZES, num_experts=3),
    "models.modern_bert": lambda: models.modern_bert(V, **SIZES),
    "models.patch_tst": lambda: models.patch_tst(LENGTH, 4, 5, patch_length=4, stride=2, **SIZES),
    "models.perceiver": lambda: models.perceiver(V, **SIZES, num_latents=3, max_length=16),
    "models.reformer": lambda: models.reformer(V, **SIZES, axial_shape=(4, 4), chunk_length=2),
    "models.sparse_transformer": lambda: models.sparse_transformer(
        V, **SIZES, image_shape=(2, 8, 1)
    ),
    "models.super_resolution_transformer": lambda: models.super_resolution_transformer(
        V, (1, 3, 1), (3, 4, 1), 1, **SIZES
    ),
    "models.switch_transformer": lambda: models.switch_transformer(
        V, **{**SIZES, "num_layers": 2}, num_experts=3
    ),
    "models.t5": lambda: models.t5(V, **SIZES),
    "models.transformer": lambda: models.transformer(V, **SIZES),
    "models.transformer_xl": lambda: models.transformer_xl(V, **SIZES, memory_length=12),
    "models.universal_transformer": lambda: models.universal_transformer(V, **SIZES),
    "models.vit": lambda: models.vit(V, (LENGTH, 4, 1), 2, **SIZES),
}
# Losses of logits (2, LENGTH, V), or what stands in their place, as functions without arguments.
LOSSES = {
    "losses.AuxiliaryLosses": lambda: auxiliary_loss(),
    "losses.ContrastiveLoss": lambda: contrastive_loss(),
    "losses.Distillation": lambda: distillation_loss(),
    "losses.DistributionLoss": lambda: losses.DistributionLoss("student_t")(
        np.zeros((2, LENGTH)), 1.0 + keras.random.uniform((2, LENGTH, 3), seed=0)
    ),
    "losses.LabelSmoothedCrossentropy": lambda: losses.LabelSmoothedCrossentropy()(
        token_ids(), keras.random.normal((2, LENGTH, V), seed=0)
    ),
    "losses.Quantile": lambda: losses.Quantile((0.1, 0.9))(
        np.zeros((2, LENGTH)), keras.random.normal((2, LENGTH, 2), seed=0)
    ),
    "losses.MixtureOfLogistics": lambda: losses.MixtureOfLogistics(2, num_values=V)(
        np.random.default_rng(0).integers(0, V, (2, LENGTH, 3)),
        keras.random.normal((2, LENGTH, losses.MixtureOfLogistics(2).num_parameters), seed=0),
    ),
}
# Arguments that change who may see whom, and a block with them.
NOT_CAUSAL = {
    "patterns.Local": ("causal=False", lambda: block(pattern=patterns.Local(2, causal=False))),
    "patterns.LSH": (
        "causal=False",
        lambda: block(score="shared_qk", pattern=patterns.LSH(2, causal=False)),
    ),
    "feed_forward.SeparableConvTransition": (
        "causal=False",
        lambda: block(pattern="dense", feed=feed_forward.SeparableConvTransition(11)),
    ),
}


def auxiliary_loss():
    model = losses.AuxiliaryLosses(causal_model(depth.Stack([block(), block()])), total_steps=100)
    model.compile("sgd", losses.LabelSmoothedCrossentropy())
    return model.train_on_batch({"token_ids": token_ids()}, token_ids(1))


def contrastive_loss():
    layer, vectors = losses.ContrastiveLoss(), np.random.default_rng(0).normal(size=(2, 3, D))
    layer(*vectors.astype("float32"))
    return layer.losses[0]


def distillation_loss():
    model = losses.Distillation(causal_model(), causal_model())
    model.compile("sgd", losses.LabelSmoothedCrossentropy())
    return model.train_on_batch({"token_ids": token_ids()}, token_ids(1))


def make(name):
    """Return the tiny model with the value `name`."""
    if name in MODELS:
        return MODELS[name]()
    made = BLOCKS[name]()
    if not made.attention.pattern.causal:
        return masked_model(made)
    position = None if name == "positions.Rotary" else "sinusoidal"
    return causal_model(depth.Stack([made]), position)


def make_all_blocks(is_causal):
    """Return one model with a block of each value that is part of a block, causal or not."""
    blocks = [make_block() for make_block in BLOCKS.values()]
    blocks = [each for each in blocks if bool(each.attention.pattern.causal) == is_causal]
    if is_causal:
        return causal_model(depth.Stack(blocks))
    return masked_model(*blocks)


def token_ids(seed=0):
    return np.random.default_rng(seed).integers(4, V, (2, LENGTH)).astype("int32")


def inputs_of(model):
    """Return inputs of two rows, and the name of the one with an output at each position."""
    if isinstance(model, memory.StatefulSegments):
        model = model.model
    names = list(model.input)
    if "images" in names:
        shape = 2, LENGTH, 4, 1
        inputs = {"images": np.random.default_rng(0).normal(size=shape).astype("float32")}
    elif "values" in names:
        shape = (2, LENGTH, 4)[: len(model.input["values"].shape)]
        inputs = {"values": np.random.default_rng(0).normal(size=shape).astype("float32")}
    elif "states" in names:
        inputs = {"states": np.random.default_rng(0).normal(size=(2, LENGTH, 4)).astype("float32")}
        if "returns" in names:
            inputs |= {"returns": inputs["states"][..., 0], "actions": inputs["states"]}
    else:
        inputs = {name: token_ids() for name in names if name in ("token_ids", "target_ids")}
        if "source_ids" in names:
            inputs["source_ids"] = token_ids(1)[:, :3]
    return inputs, next(
        n for n in ("values", "states", "images", "target_ids", "token_ids") if n in inputs
    )
