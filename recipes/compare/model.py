"""The small language model of which each value of an axis changes one thing."""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras

from keras_attn import depth, layers, losses, models, registry
from keras_attn.ops.shapes import head_size

ATTENTION = {"layer": layers.MultiHeadAttention, "pattern": "causal", "position": "rotary"}


@dataclasses.dataclass(frozen=True)
class Changes:
    """Changes of the plain model; without arguments none.

    Args:
        attention: dict of arguments of the attention layer, or a function from the index of the
            layer to such a dict. Its entry `layer` is the class. By default it is causal, with
            rotary positions, by which a small budget shows what attention does.
        heads: the number of heads and their size, or None for those of the options.
        position: of the model, or None for none.
        residual: of each block.
        feed_forward: of each block; None for a `FeedForward` with a ReLU.
        depth: function from a block's function and the number of layers to a depth.
        memory: of the model.
        loss: function that returns the loss to minimise.
        wrapper: function from the model and the number of steps to the model that is trained.
    """

    attention: dict | Callable = dataclasses.field(default_factory=dict)
    heads: tuple | None = None
    position: Any = None
    residual: Any = "pre_norm"
    feed_forward: keras.layers.Layer | None = None
    depth: Callable = depth.Stack
    memory: Any = None
    loss: Callable = lambda: losses.LabelSmoothedCrossentropy(0.0)
    wrapper: Callable | None = None

    def build(self, vocabulary_size, options):
        """Return a causal language model."""
        return models.CausalLanguageModel(
            layers.TokenEmbedding(vocabulary_size, options.hidden_dim),
            self.depth(lambda index: self.block(index, options), options.num_layers),
            position=_own(self.position),
            memory=_own(self.memory),
            dropout=options.dropout,
        )

    def block(self, index, options):
        """Return the block of a layer."""
        return layers.TransformerBlock(
            self._attention(index, options),
            _own(self.feed_forward or layers.FeedForward(options.intermediate_dim)),
            residual=self.residual,
            dropout=options.dropout,
        )

    def _attention(self, index, options):
        own = self.attention(index) if callable(self.attention) else self.attention
        arguments = {name: _own(value) for name, value in {**ATTENTION, **own}.items()}
        hidden_dim, num_heads = options.hidden_dim, options.num_heads
        heads = self.heads or (num_heads, head_size(hidden_dim, num_heads))
        return arguments.pop("layer")(*heads, **arguments)


PLAIN = Changes()


def _own(value):
    """Return a copy of a layer, so that each block and each model has weights of its own."""
    return registry.copy(value) if isinstance(value, keras.layers.Layer) else value
