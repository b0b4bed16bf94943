"""Values, layers and memories are made again from their configurations."""

import inspect

import keras
import numpy as np
import pytest
from marks import all_slow

from keras_attn import (
    depth,
    generation,
    layers,
    memory,
    metrics,
    models,
    norms,
    patterns,
    positions,
    residuals,
    scores,
)
from keras_attn.losses import LabelSmoothedCrossentropy
from keras_attn.models.papers.decoder import untied_head
from keras_attn.ops.activations import gelu_tanh

MIXED = {"name": "named", "dtype": "mixed_bfloat16"}
FORWARD = {"dropout": 0.5, "chunks": 2, "activation": gelu_tanh, "output_initializer": "zeros"}


def block(index=0, **arguments):
    attention = layers.MultiHeadAttention(2, 3, pattern="causal")
    return layers.TransformerBlock(attention, layers.FeedForward(5), **arguments)


# Arguments that differ from the defaults. Patterns are in tests/patterns/test_patterns.py,
# attention is in test_attention_arguments.py, and models are in tests/models/test_laws.py.
VALUES = [
    scores.DotProduct(False),
    scores.SharedQK(),
    scores.Additive(6, **MIXED),
    scores.Relative(hidden_dim=6, clamp_length=9, **MIXED),
    scores.LearnedRelative(4, **MIXED),
    scores.Cosine(3.0, max_scale=30.0),
    scores.Kernel("relu"),
    scores.FAVOR(64, seed=1),
    scores.Disentangled(6, max_distance=None),
    scores.SoftCap(scores.DotProduct() + scores.T5Bias(12, 13, bidirectional=True), 3.0),
    scores.Cosine() + scores.ALiBi(),
    patterns.Sinks(2, 5),
    patterns.BlockLocal2D([4, 6], (2, 3), (np.int64(1), 0)),
    patterns.LSH(8, 2, 16, causal=False, across_buckets=True, wrap=True, seed=3),
    patterns.AdaptiveSpan(9, ramp=3, span_loss=0.1, dynamic=True),
    positions.Axial((3, 4), (2, 5), embeddings_initializer="he_normal", name="where"),
    positions.AxialRotary((3, 5), 7),
    positions.ImageCoordinates(3, 5, 2, encoding="sinusoidal", name="where"),
    positions.Learned(7, embeddings_initializer="ones", name="where"),
    positions.Sinusoidal("concat", max_wavelength=100, **MIXED),
    positions.Timestep("concat", 100),
    positions.Rotary(500, "half", 0.5, max_length=9),
    positions.Rotary(scaling=positions.Interpolation(2)),
    positions.Rotary(scaling=positions.NTK(4)),
    positions.Rotary(scaling=positions.YaRN(4, 16, False, 8.0, 0.5, 1.5)),
    positions.Rotary(scaling=positions.Llama3(8, 16, 2.0, 6.0)),
    positions.Rotary(scaling=positions.LongRoPE(2, 16, [1.0, 2.0], 1.5)),
    norms.LayerNorm(0.5, **MIXED),
    norms.RMSNorm(0.5, offset=1.0, **MIXED),
    norms.DyT(**MIXED),
    residuals.PostNorm(norm=norms.LayerNorm(0.5), **MIXED),
    residuals.PreNorm(norm=norms.RMSNorm(0.5), **MIXED),
    residuals.SandwichNorm(norm="dyt", **MIXED),
    residuals.OutputNorm("rms_norm"),
    residuals.DeepNorm(3, norm=norms.LayerNorm(0.5)),
    residuals.LayerScale(0.1, norm="dyt"),
    residuals.ReZero(),
    residuals.Gate("highway", bias=1, norm=norms.LayerNorm(0.5), kernel_initializer="he_normal"),
    layers.FeedForward(7, **FORWARD),
    layers.GatedFeedForward(7, use_bias=True, **FORWARD),
    layers.MixtureOfExperts(
        layers.GatedFeedForward(7, dropout=0.2),
        *(5, 1),
        router="probability",
        z_loss=0.1,
        shared=layers.FeedForward(3),
        use_router_bias=True,
    ),
    layers.SeparableConvTransition(7, causal=True, dropout=0.1),
    layers.TokenEmbedding(11, 6, scaled=False, pad_id=5, logits_cap=3.0, name="words"),
    layers.AdaptiveEmbedding(23, 12, [5, 11], 2, False, None, "ones", "ones", name="words"),
    layers.AdaptiveSoftmax(layers.AdaptiveEmbedding(23, 12, [5, 11], 2), "all_but_first"),
    layers.SegmentEmbedding(3, embeddings_initializer="ones", name="which"),
    layers.MaskedTokenHead(layers.TokenEmbedding(11, 6), "relu", use_bias=False, name="guess"),
    layers.TokenHead(layers.TokenEmbedding(11, 6), bias_initializer="ones", name="guess"),
    layers.AnswerHead(kernel_initializer="ones", use_bias=False, name="guess"),
    block(residual="gate", dropout=0.25, name="decoder"),
    layers.ParallelBlock(
        *(layers.MultiHeadAttention(2, 3), layers.FeedForward(5)),
        shared_norm=False,
        residual="pre_norm",
    ),
    layers.PositionedBlock(block(), positions.Learned(16)),
    layers.ConvolutionBlock(
        *(layers.MultiHeadAttention(2, 3), layers.FeedForward(5)),
        kernel_size=5,
        groups=2,
        activation="gelu",
        norm=norms.LayerNorm(0.5),
    ),
    layers.TransformedHead(
        layers.HeadTransform(7, "relu", norms.LayerNorm(0.5), False, "ones"),
        layers.AnswerHead(name="head"),
    ),
    layers.Pool(["max", "mean"], True, False, **MIXED),
    layers.Projection(7, gelu_tanh, False, True, **MIXED),
    layers.Truncate(3, **MIXED),
    layers.EmbeddingProjection(7, norms.LayerNorm(0.5), kernel_initializer="ones"),
    layers.DifferentialAttention(4, 3, 2, pattern="causal", num_key_value_heads=2),
    layers.GlobalAttention(3, 4, 2, num_global=2, pattern=patterns.Local(3) | patterns.Global(2)),
    layers.KNNAttention(2, 4, top_k=3, join="softmax", pattern="causal"),
    depth.Stack(block, 2, drop=0.4, remat=True, name="encoder"),
    depth.Recurrent(block, 3, "timestep"),
    depth.Reversible([block(residual="pre_norm")], join="concatenate"),
    depth.ACT(block(), 3, 0.1, variant="tensor2tensor", position="timestep"),
    memory.KVCache(7, whole=True),
    memory.SegmentMemory(7),
    memory.KNNMemory(7),
    memory.CompressiveMemory(7, 5, rate=2, compression="max", name="memory"),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_configuration_makes_the_same_value(value):
    config = keras.saving.serialize_keras_object(value)
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is type(value) and repr(again) == repr(value)
    assert keras.saving.serialize_keras_object(again) == config
    arguments = inspect.signature(type(value).__init__).parameters.values()
    names = {a.name for a in arguments if a.kind not in (a.VAR_POSITIONAL, a.VAR_KEYWORD)}
    assert names - {"self"} <= {*value.get_config(), "block"}
    if not isinstance(value, keras.layers.Layer):
        assert again == value


NAMED = {scores: scores.NAMES, positions: positions.NAMES, norms: norms.NAMES}
NAMED[residuals] = residuals.NAMES


@pytest.mark.parametrize("axis", NAMED, ids=lambda axis: axis.__name__)
def test_names_of_values_and_their_policy(axis):
    for name in NAMED[axis]:
        value = axis.get(name, dtype="mixed_bfloat16")
        assert axis.get(value) is value
        assert getattr(value, "compute_dtype", "bfloat16") == "bfloat16"


TWO, HALF = np.int64(2), np.float32(0.5)
BY_NUMPY = {
    "MultiHeadAttention(2, 2)": lambda: layers.MultiHeadAttention(TWO, TWO),
    "Local(2)": lambda: patterns.Local(TWO),
    "Beam(beams=2)": lambda: generation.Beam(TWO),
    "Sample(temperature=0.5, top_k=2)": lambda: generation.Sample(HALF, TWO),
    "KVCache(2)": lambda: memory.KVCache(TWO),
    "Perplexity(ignore_class=2)": lambda: metrics.Perplexity(TWO),
    "LabelSmoothedCrossentropy(label_smoothing=0.5)": lambda: LabelSmoothedCrossentropy(HALF),
    "ImageTokens((2, 2, 2), num_values=2)": lambda: models.ImageTokens((TWO,) * 3, TWO),
}


@pytest.mark.parametrize("shown", BY_NUMPY)
def test_numbers_of_numpy_are_numbers_of_python(shown):
    value = BY_NUMPY[shown]()
    assert repr(value).replace(", dtype='float32'", "") == shown
    assert not any(isinstance(x, np.generic) for x in keras.tree.flatten(value.get_config()))


SIZES = {"num_layers": 1, "num_heads": TWO, "hidden_dim": np.int64(8), "intermediate_dim": TWO}


@pytest.mark.parametrize(
    "build",
    [
        lambda: untied_head(np.int64(5), "zeros"),
        *all_slow(
            [
                lambda: models.gtrxl(heads={"value": TWO}, state_shape=(TWO,), **SIZES),
                lambda: models.image_transformer(
                    np.int64(5), (TWO,) * 3, num_mixtures=TWO, **SIZES
                ),
            ]
        ),
    ],
)
def test_builders_take_sizes_of_numpy(build, tmp_path):
    layer = build()
    if isinstance(layer, keras.Model):
        layer.save(tmp_path / "model.keras")
        layer = keras.saving.load_model(tmp_path / "model.keras")
    assert "np." not in str(layer.get_config())
