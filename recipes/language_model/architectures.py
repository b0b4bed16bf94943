"""The model of each name, with what its paper asks for beside the sizes."""

import math

from keras_attn import models
from keras_attn.memory import SegmentMemory

from ..options import build_model


def build(options, vocabulary_size):
    """The model `options.model` of so many tokens."""
    page = getattr(models, options.model)
    arguments = {
        "vocabulary_size": vocabulary_size,
        "num_layers": options.num_layers,
        "num_heads": options.num_heads,
        "hidden_dim": options.hidden_dim,
        "intermediate_dim": options.intermediate_dim,
        "dropout": options.dropout,
        **_OWN[options.model](options),
        **(_FULL[options.model](options) if options.full_attention else {}),
    }
    model = build_model(page, arguments, options.more)
    if options.full_attention and options.model == "adaptive_span_transformer":
        for pattern in span_patterns(model):
            pattern.span.assign([1.0] * options.num_heads)
            pattern.span.trainable = False
    return model


def span_patterns(model):
    """The pattern of each layer of an `adaptive_span_transformer`."""
    return [block.attention.pattern for block in model.depth.blocks]


def with_memory(model, memory_length):
    """The same parts, and so the same weights, with another memory."""
    parts = {name: getattr(model, name) for name in model.parts}
    return models.CausalLanguageModel(**{**parts, "memory": SegmentMemory(memory_length)})


def rows(context):
    """The two factors of a length that are nearest its square root, the greater one first.

    Raises:
        ValueError: if the length is a prime, which has no rows.
    """
    row = next(n for n in range(math.isqrt(context), 0, -1) if context % n == 0)
    if row == 1:
        raise ValueError(
            f"--context must be a product for a model that reads rows. Received: {context}."
        )
    return context // row, row


def _sparse(options):
    num_rows, row = rows(options.context)
    # A quarter of a row, as the paper's 32 of 128 on enwik8.
    return {"image_shape": (num_rows, row, 1), "summary": max(1, row // 4)}


_OWN = {
    "gpt": lambda options: {"max_length": options.context},
    "deep_char_transformer": lambda options: {"max_length": options.context},
    "transformer_xl": lambda options: {"memory_length": options.memory},
    "adaptive_span_transformer": lambda options: {"max_span": options.memory},
    "reformer": lambda options: {"axial_shape": rows(options.context)},
    "sparse_transformer": _sparse,
}
# What makes every query meet all keys before it.
_FULL = {
    "adaptive_span_transformer": lambda options: {"span_loss": 0.0},
    "reformer": lambda options: {"attention": ("full",)},
    "sparse_transformer": lambda options: {"factors": "full"},
}
