"""A builder with the value of one axis replaced gives another model, and that trains.

The value is replaced in the builder's source, as a reader would.
"""

import inspect
import json
import re
import sys

import keras
import numpy as np
import oracles
import pytest
from models import formulas

from keras_attn import (
    depth,
    feed_forward,
    models,
    norms,
    patterns,
    positions,
    residuals,
    scores,
)
from keras_attn.memory import StatefulSegments

AXES = (depth, feed_forward, norms, patterns, positions, residuals, scores)
NAMES = {name: value for axis in AXES for name, value in vars(axis).items()}
IMAGE = (formulas.T, 1, 1)
PAIRS = {"hidden_dim": 8}  # heads of an even size, for rotary positions
# The arguments of each builder beside its sizes.
ARGUMENTS = {
    "transformer": {},
    "bert": {"max_length": 12},
    "gpt": {"max_length": 12},
    "deep_char_transformer": {"max_length": 12},
    "transformer_xl": {"memory_length": 3},
    "adaptive_span_transformer": {"max_span": 4, "ramp": 2},
    "sparse_transformer": {"image_shape": (3, 4, 1)},
    "reformer": {"axial_shape": (3, 4), "chunk_length": 4, "attention": ("lsh", "local")},
    "universal_transformer": {},
    "image_transformer": {"image_shape": IMAGE},
    "super_resolution_transformer": {
        "source_shape": IMAGE,
        "image_shape": IMAGE,
        "num_encoder_layers": 1,
    },
    "gtrxl": {"state_shape": 1, "heads": {"logits": formulas.V}, "memory_length": 3},
    "llama": PAIRS,
    "mistral": {**PAIRS, "window": 3},
    "mixtral": {**PAIRS, "num_experts": 3},
    "gpt_oss": {"key_dim": 4, "num_experts": 3, "top_k": 2},
    "gemma": {**PAIRS, "window": 3},
    "t5": {},
    "switch_transformer": {"num_experts": 3, "expert_every": 1},
    "modern_bert": PAIRS,
    "longformer": {"max_length": 12, "window": 4, "num_segments": 2},
    "big_bird": {"max_length": 12, "block_length": 2},
    "vit": {"num_classes": formulas.V, "image_shape": (4, 4, 1), "patch_size": 2},
    "perceiver": {"max_length": 12, "num_latents": 3},
    "decision_transformer": {
        **{"state_size": 1, "action_size": formulas.V},
        **{"discrete": True, "max_steps": 12},
    },
}
CAUSAL = {
    "score": ('pattern="causal"', 'score="additive", pattern="causal"'),
    "pattern": ('"causal"', "Local(3)"),
}
OF_ARGUMENTS = {
    "score": ("registry.copy(score)", '"additive"'),
    "pattern": ("make_causal(pattern)", "Fixed(3, 1)"),
}
RECURRENT = "Stack(", "Recurrent("
BETWEEN = "FeedForward(intermediate_dim)"
ROTARY = 'positions.Rotary(max_wavelength, "half", scaling=scaling)'
GATED = "layers.GatedFeedForward(intermediate_dim, kernel_initializer=normal)"
IN_TURN = '"causal" if index % 2 else patterns.Local(window)'
SWAPS = {
    "transformer": {
        **OF_ARGUMENTS,
        "position": ("position=position", "position=Learned(12)"),
        "residual": ("residual=residual", 'residual="gate"'),
        "depth": RECURRENT,
    },
    "bert": {
        "score": ("pattern=pattern_of", 'score="relative", pattern=pattern_of'),
        "pattern": (
            "pattern_of(pattern, index)",
            "Local(3, causal=False)",
        ),
        "position": (
            "positions.Learned(max_length, embeddings_initializer=normal)",
            '"sinusoidal"',
        ),
        "residual": ("residuals.PostNorm(norm=norms.LayerNorm(epsilon))", '"pre_norm"'),
        "depth": ("Stack(", "ACT("),
    },
    "gpt": {
        "score": ("pattern=pattern_of", 'score="additive", pattern=pattern_of'),
        "pattern": ("pattern_of(pattern, index)", "Local(3)"),
        "position": ("Learned(max_length, embeddings_initializer=normal)", "Axial((3, 4), (2, 4))"),
        "residual": ("residuals.PreNorm(norm=norms.LayerNorm(epsilon))", '"post_norm"'),
        "depth": ("Stack(", "Reversible("),
    },
    "deep_char_transformer": {
        **CAUSAL,
        "position": ("positions.Learned(max_length)", '"sinusoidal"'),
        "residual": ('"post_norm"', '"pre_norm"'),
        "depth": RECURRENT,
    },
    "transformer_xl": {
        "score": ("scores.Relative(clamp_length=clamp_length)", '"scaled_dot"'),
        "pattern": ('"causal"', "AdaptiveSpan(4)"),
        "residual": ('"post_norm"', '"gate"'),
        "depth": RECURRENT,
    },
    "adaptive_span_transformer": {
        "score": ("scores.LearnedRelative(max_span)", '"relative"'),
        "pattern": (
            "patterns.AdaptiveSpan(max_span, ramp, span_loss=span_loss, dynamic=dynamic)",
            '"causal"',
        ),
        "residual": ('"post_norm"', '"pre_norm"'),
        "depth": RECURRENT,
    },
    "sparse_transformer": {
        "score": ("pattern=pattern_of", 'score="relative", pattern=pattern_of'),
        "pattern": ("Strided(stride, factor)", "BlockLocal1D(stride, stride)"),
        "position": (
            "ImageCoordinates(\n            *image_shape, "
            "embeddings_initializer=WaveTable(deviation)\n        )",
            "Axial(image_shape, (2, 2, 2))",
        ),
        "residual": ('"pre_norm"', '"post_norm"'),
        "depth": ("remat=remat, name", "name"),
    },
    "reformer": {
        "score": ('"scaled_dot"', '"relative"'),
        "pattern": (
            "LSH(chunk_length, num_rounds, num_buckets, across_buckets=across_buckets)",
            "Local(chunk_length)",
        ),
        "position": ("positions.Axial(axial_shape, axial_dims)", '"sinusoidal"'),
        "depth": ("Reversible(", "Stack("),
    },
    "universal_transformer": {
        **OF_ARGUMENTS,
        "position": ("position=None", "position=Learned(12)"),
        "residual": ("residual=residual", 'residual="gate"'),
        "depth": ('depth == "recurrent"', 'depth == "act"'),
    },
    "image_transformer": {
        "score": ("pattern=pattern", 'score="additive", pattern=pattern'),
        "pattern": ("causal_pattern(pattern)", "Strided(3)"),
        "position": (
            "image_position((height, width, channels), pattern, encoding)",
            "Learned(12)",
        ),
        "residual": (BETWEEN, f'{BETWEEN}, residual="gate"'),
        "depth": RECURRENT,
    },
    "super_resolution_transformer": {
        "score": ("pattern=pattern", 'score="additive", pattern=pattern'),
        "pattern": ("causal_pattern(pattern)", "Fixed(3, 1)"),
        "position": ("image_position(image_shape, pattern, encoding)", "Learned(12)"),
        "residual": (BETWEEN, f'{BETWEEN}, residual="pre_norm"'),
        "depth": RECURRENT,
    },
    "gtrxl": {
        "score": ('"relative"', '"scaled_dot"'),
        "pattern": ('"causal"', "Local(3)"),
        "residual": ("residual=residual", 'residual="pre_norm"'),
        "depth": RECURRENT,
    },
    "llama": {
        "score": ("pattern=pattern", 'score="dot", pattern=pattern'),
        "pattern": ("pattern=pattern", "pattern=Local(3)"),
        "position": (ROTARY, "None"),
        "norm": ("norms.RMSNorm(epsilon)", "DyT()"),
        "residual": ("PreNorm", "SandwichNorm"),
        "feed_forward": (GATED, "FeedForward(intermediate_dim)"),
        "depth": RECURRENT,
    },
    "mistral": {"pattern": ("patterns.Local(window)", '"causal"')},
    "mixtral": {
        "feed_forward": (
            "layers.MixtureOfExperts(expert, num_experts, top_k, balance_loss=balance_loss)",
            "expert",
        ),
        "pattern": ('"causal"', "Strided(3)"),
        "depth": RECURRENT,
    },
    "gpt_oss": {
        "pattern": (IN_TURN, '"causal"'),
        "position": (ROTARY, "None"),
        "feed_forward": ("ClippedGatedFeedForward", "GatedFeedForward"),
        "residual": ("PreNorm", "SandwichNorm"),
    },
    "gemma": {
        "score": ("scores.SoftCap(scores.DotProduct(), attention_cap)", "Cosine()"),
        "pattern": (IN_TURN, '"causal"'),
        "position": ('positions.Rotary(layout="half")', "None"),
        "norm": ("norms.RMSNorm(epsilon, offset=1.0)", "LayerNorm(epsilon)"),
        "residual": ("SandwichNorm", "OutputNorm"),
        "depth": RECURRENT,
    },
    "t5": {"feed_forward": ("kind(", "GatedFeedForward(")},
    "switch_transformer": {"feed_forward": ("GatedFeedForward", "FeedForward")},
    "modern_bert": {
        "pattern": ('"dense"', "Local(3, causal=False)"),
        "position": ('positions.Rotary(wavelength, "half")', "None"),
        "norm": ("LayerNorm(1e-5, use_bias=False)", "RMSNorm()"),
        "residual": ("PreNorm", "ReZero"),
        "feed_forward": (
            'GatedFeedForward(intermediate_dim, "gelu", **init)',
            "FeedForward(intermediate_dim)",
        ),
    },
    "longformer": {"pattern": ("patterns.Global(num_global)", "Random(2, 1, 12)")},
    "big_bird": {"pattern": ("patterns.Global(block_length)", "Dilated(3, 2, causal=False)")},
    "vit": {
        "score": ("num_heads, head_size", 'num_heads, score="additive", key_dim=head_size'),
        "pattern": ("num_heads, head_size", 'num_heads, pattern="causal", key_dim=head_size'),
        "norm": ("norms.LayerNorm(epsilon)", "RMSNorm()"),
        "residual": ("PreNorm", "LayerScale"),
        "depth": RECURRENT,
    },
    "perceiver": {
        "norm": ("norms.LayerNorm(1e-12)", "RMSNorm()"),
        "position": (
            "positions.Learned(max_length, embeddings_initializer=normal)",
            '"sinusoidal"',
        ),
        "depth": RECURRENT,
    },
    "decision_transformer": {
        **CAUSAL,
        "norm": ("LayerNorm(1e-5)", "RMSNorm()"),
        "residual": ("PreNorm", "SandwichNorm"),
        "depth": RECURRENT,
    },
}


def swapped(name, old, new):
    """Return the builder with every `old` of its function replaced by `new`."""
    builder = getattr(models, name)
    source = inspect.getsource(builder)
    body = source.index('"""', source.index('"""') + 3)
    assert old in source[body:], f"{name} has no {old}"
    source = source[:body] + source[body:].replace(old, new)
    names = {**NAMES, **vars(sys.modules[builder.__module__])}
    exec(compile(source, f"{name} with {new}", "exec"), names)
    return names[name]


def built(name, builder, num_layers=formulas.L):
    sizes = {**formulas.SIZES, **ARGUMENTS[name], "num_layers": num_layers}
    if "vocabulary_size" not in inspect.signature(builder).parameters:
        del sizes["vocabulary_size"]
    return builder(**sizes, dropout=0.0)


def inputs_of(model):
    inputs = {key: formulas.IDS for key in model.input if key.endswith("ids")}
    if "images" in model.input:
        return {"images": oracles.random(len(formulas.IDS), 4, 4, 1)}
    if "states" in model.input:
        inputs["states"] = formulas.IDS[..., None] / formulas.V
    if "returns" in model.input:
        inputs |= {"returns": formulas.IDS / formulas.V, "actions": formulas.IDS}
    return {**inputs, "segment_ids": formulas.IDS % 2} if "segment_ids" in inputs else inputs


def described(model):
    """Return a model's configuration without the numbers in names."""
    return re.sub(r"_\d+", "", json.dumps(model.get_config()))


def build_swapped(name, axis):
    """Return a builder's model with one axis swapped, after a check that it is another model."""
    # One layer is quicker, but for what it is that repeats it, and for layers that differ.
    num_layers = 2 if axis == "depth" or name == "reformer" else 1
    model = built(name, swapped(name, *SWAPS[name][axis]), num_layers)
    assert described(model) != described(built(name, getattr(models, name), num_layers))
    return model


@pytest.mark.slow
@pytest.mark.parametrize("name", SWAPS)
def test_builder_with_any_axis_swapped_is_another_model(name):
    for axis in SWAPS[name]:
        build_swapped(name, axis)


# The axes take turns, so that each is trained in two or three builders; of the later ones, which
# share their parts, few are fast tests.
LATER = ("mixtral", "gpt_oss", "gemma", "t5", "switch_transformer", "longformer", "big_bird")
LATER += ("vit", "perceiver", "decision_transformer")


@pytest.mark.parametrize(
    "name, axis",
    [
        pytest.param(
            *(name, list(swaps)[index % len(swaps)]), marks=[pytest.mark.slow] * (name in LATER)
        )
        for index, (name, swaps) in enumerate(SWAPS.items())
    ],
)
def test_builder_with_one_swapped_axis_trains(name, axis):
    model = build_swapped(name, axis)
    inputs = inputs_of(model)
    if isinstance(model.output, dict):
        model = StatefulSegments(model, batch_size=len(formulas.IDS))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, run_eagerly=True)
    before = [w.numpy() for w in model.trainable_weights]
    labels = formulas.IDS[:, 0] if "images" in inputs else formulas.IDS
    for _ in range(1 + (name == "vit")):  # through its head of zeros no gradient passes at first
        assert np.all(np.isfinite(model.train_on_batch(inputs, labels)))
    after = [w.numpy() for w in model.trainable_weights]
    assert all(np.all(np.isfinite(w)) for w in after)
    unchanged = [
        w.path
        for w, old, new in zip(model.trainable_weights, before, after, strict=True)
        if np.array_equal(old, new)
    ]
    # No softmax sees what a bias adds to all keys of a query alike; a span of 0 may only grow.
    assert [path for path in unchanged if not path.endswith(("key_bias", "span"))] == []


def test_reversible_depth_refuses_post_norm():
    """A normalised sum cannot be undone, so a reversible depth needs pre-norm."""
    with pytest.raises(ValueError, match="`residual='pre_norm'`, whose sum can be undone"):
        built("reformer", swapped("reformer", '"pre_norm"', '"post_norm"'))
