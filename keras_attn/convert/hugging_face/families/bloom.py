"""BLOOM: plain decoders with ALiBi, whose token table has a norm."""

import functools
import math

import numpy as np

from keras_attn import scores
from keras_attn.compat.unallocated import assign
from keras_attn.convert.hugging_face.families.causal_family import FIRST
from keras_attn.convert.hugging_face.families.family import read_part
from keras_attn.convert.hugging_face.families.parallel_decoders import (
    EPSILON,
    GPTNeoX,
    PlainDecoder,
)
from keras_attn.convert.hugging_face.heads import TOKENS, head_of
from keras_attn.convert.hugging_face.weights import Fold, numbers
from keras_attn.ops.activations import gelu_tanh

_NORM = "word_embeddings_layernorm"
# Names of options in the files of before 2023.
_OLD_NAMES = {"n_embed": "hidden_size", "num_hidden_layers": "n_layer"}
_OLD_NAMES |= {"num_attention_heads": "n_head"}
_ROWS = 4096  # that are normalized at once, in float64


class Bloom(PlainDecoder):
    """BLOOM. The norm of its embeddings becomes part of the token table, so the head is untied."""

    name, prefix, tied = "Bloom", "transformer.", True
    heads, head_names = ("lm_head", *GPTNeoX.heads[1:]), GPTNeoX.head_names
    paths = {
        "vocab_size": "embedding.vocabulary_size",
        "hidden_size": "embedding.hidden_dim",
        "n_layer": "depth.num_layers",
        "n_head": f"{FIRST}.attention.num_heads",
        "layer_norm_epsilon": EPSILON,
    }
    projections, by_group = GPTNeoX.projections, True
    feed_forward = GPTNeoX.feed_forward
    embedding, blocks, attention = "word_embeddings", "h.{}.", "self_attention."
    closing_norm = "ln_f"

    def fits(self, model):
        """Return True if ALiBi is the only position."""
        terms = getattr(read_part(model, f"{FIRST}.attention.score"), "terms", ())
        has_bias = any(isinstance(term, scores.ALiBi) for term in terms)
        return has_bias and model.position is None

    def activation(self, config):
        return gelu_tanh

    def width(self, config):
        return 4 * config.size("hidden_size")

    def choices(self, config):
        config.require(apply_residual_connection_post_layernorm=False)
        if config.size("pretraining_tp", 1) > 1:
            config.require(slow_but_exact=False)  # transformers leaves two biases out
        score = scores.DotProduct() + scores.ALiBi()
        return {"position": lambda index: None, "score": score}

    def convert_language_model(self, checkpoint, overrides):
        values = checkpoint.config.values
        values |= {name: values[old] for old, name in _OLD_NAMES.items() if old in values}
        return super().convert_language_model(checkpoint, overrides)

    def drop_tied_head(self, checkpoint):
        """Normalize the table of the inputs, which logits then do not share."""
        table, has_logits = f"{self.embedding}.weight", self.read_head(checkpoint) == TOKENS
        if super().drop_tied_head(checkpoint) and has_logits:
            checkpoint.derive(f"{self.output_head}.weight", [table])
        epsilon = checkpoint.config.number("layer_norm_epsilon", self.epsilon)
        originals = table, f"{_NORM}.weight", f"{_NORM}.bias"
        normalized = functools.partial(_normalized, epsilon=epsilon)
        checkpoint.derive(table, originals, normalized)
        return not has_logits

    def copy_embedding(self, checkpoint, model):
        epsilon = checkpoint.config.number("layer_norm_epsilon", self.epsilon)
        table = NormalizedTable(model.embedding.table, epsilon)
        checkpoint.transfer(f"{self.embedding}.weight", table)
        checkpoint.transfer_constant(f"{_NORM}.weight", table.shape[1:], table.gain)
        checkpoint.transfer_constant(f"{_NORM}.bias", table.shape[1:])

    def copy_weights(self, checkpoint, model):
        super().copy_weights(checkpoint, model)
        if head_of(model) == TOKENS and model.head is None:
            table = model.embedding.table
            checkpoint.transfer(f"{self.output_head}.weight", Fold([table], tuple(table.shape)))

    def position_options(self, model):
        return {}

    def language_options(self, model):
        options = super().language_options(model)
        options.pop(self.activation_option)  # BLOOM has one
        return {**options, "tie_word_embeddings": False}


class NormalizedTable:
    """A token table, in place of which a checkpoint has one that a `LayerNorm` makes it of.

        T - mean(T) = g LayerNorm(E),   E = (T - mean(T)) / g sqrt(epsilon / (1 - v))

    with a number g for which each row of (T - mean(T)) / g has a variance v of at most 1/2. All
    that reads a token's vector in BLOOM is a `LayerNorm`, so the mean of a row changes no output.

    Args:
        table: the variable T.
        epsilon: float. That of the norm.
    """

    def __init__(self, table, epsilon):
        self.variables, self.shape = [table], tuple(table.shape)
        self._epsilon = epsilon

    def assign(self, tensor):
        """Assign a table that `_normalized` has made."""
        assign(self.variables[0], tensor)

    def gain(self, shape):
        """Return the gain of the norm, the number g in each component."""
        largest = np.var(numbers(self.variables[0]), axis=1).max()
        return np.full(shape, math.sqrt(2 * largest) or 1.0)

    def tensor(self):
        """Return E, float32."""
        table = numbers(self.variables[0])
        table = (table - table.mean(axis=1, keepdims=True)) / self.gain(())
        variances = table.var(axis=1, keepdims=True)
        return (table * np.sqrt(self._epsilon / (1 - variances))).astype("float32")


def _normalized(table, gain, bias, epsilon):
    """Return a table whose rows a `LayerNorm` has normalized, computed in float64."""
    normalized = np.empty(table.shape, np.float32)
    for start in range(0, len(table), _ROWS):
        rows = table[start : start + _ROWS].astype("float64")
        rows -= rows.mean(axis=1, keepdims=True)
        deviation = np.sqrt(rows.var(axis=1, keepdims=True) + epsilon)
        normalized[start : start + _ROWS] = rows / deviation * gain + bias
    return normalized
