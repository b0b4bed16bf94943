"""T5 1.0 and 1.1, and FLAN-T5."""

import math

import numpy as np

from keras_attn import layers, models
from keras_attn.convert.hugging_face.family import (
    FIRST,
    SIDES,
    Family,
    build,
    read_options,
    read_part,
)
from keras_attn.convert.hugging_face.weights import Fold, copy_part, copy_table, numbers


class T5(Family):
    """T5 1.0 and 1.1, and FLAN-T5."""

    free = ("start_id",)  # changes the model only if it is the id of padding
    table = "shared.weight"
    has_gates = {"relu": False, "gated-gelu": True}  # by the option `feed_forward_proj`
    self_attention = {
        "attention.query": "layer.0.SelfAttention.q",
        "attention.key": "layer.0.SelfAttention.k",
        "attention.value": "layer.0.SelfAttention.v",
        "attention.output": "layer.0.SelfAttention.o",
        "attention_residual.norm": "layer.0.layer_norm",
    }
    cross_attention = {
        "cross_attention.query": "layer.1.EncDecAttention.q",
        "cross_attention.key": "layer.1.EncDecAttention.k",
        "cross_attention.value": "layer.1.EncDecAttention.v",
        "cross_attention.output": "layer.1.EncDecAttention.o",
        "cross_attention_residual.norm": "layer.1.layer_norm",
    }
    plain = {"feed_forward.intermediate": "wi", "feed_forward.output_dense": "wo"}
    gated = {
        "feed_forward.gate": "wi_0",
        "feed_forward.intermediate": "wi_1",
        "feed_forward.output_dense": "wo",
    }
    # The path in the model of each option of `config.json`.
    paths = {
        "vocab_size": "embedding.vocabulary_size",
        "d_model": "embedding.hidden_dim",
        "num_layers": "encoder.num_layers",
        "num_heads": f"{FIRST}.attention.num_heads",
        "d_kv": f"{FIRST}.attention.key_dim",
        "d_ff": f"{FIRST}.feed_forward.intermediate_dim",
        "dropout_rate": "dropout",
        "relative_attention_num_buckets": f"{FIRST}.attention.score.terms.1.num_buckets",
        "relative_attention_max_distance": f"{FIRST}.attention.score.terms.1.max_distance",
        "layer_norm_epsilon": f"{FIRST}.attention_residual.norm.epsilon",
    }

    def convert(self, checkpoint, overrides):
        """Return an `EncoderDecoder` with the weights of a checkpoint.

        Each layer gets a copy of the table of distances, which T5 shares: training unties them.
        """
        for side in SIDES:
            checkpoint.drop_copy(f"{side}.embed_tokens.weight", self.table)
        checkpoint.ignore("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight")
        tied = checkpoint.is_tied("lm_head.weight", self.table)
        model = build(models.t5, self.arguments(checkpoint.config, tied), overrides)
        self.copy_weights(checkpoint, model)
        return model

    def arguments(self, config, tied):
        """Return the arguments of `models.t5` for a configuration."""
        num_layers, kind = config.size("num_layers"), config.get("feed_forward_proj", "relu")
        config.require(layer_norm_epsilon=1e-6, num_decoder_layers=num_layers)
        if not isinstance(kind, str) or kind not in self.has_gates:
            config.refuse(f"The option feed_forward_proj={kind!r} is not converted.")
        return {
            "vocabulary_size": config.size("vocab_size"),
            "num_layers": num_layers,
            "num_heads": config.size("num_heads"),
            "hidden_dim": config.size("d_model"),
            "intermediate_dim": config.size("d_ff"),
            "dropout": config.number("dropout_rate", 0.1),
            "key_dim": config.size("d_kv"),
            "num_buckets": config.size("relative_attention_num_buckets", 32),
            "max_distance": config.size("relative_attention_max_distance", 128),
            "gated": self.has_gates[kind],
            "tied": tied,
            "pad_id": config.index("pad_token_id", 0),
            "start_id": config.index("decoder_start_token_id", 0),
        }

    def build(self, config, model):
        return models.t5(**self.arguments(config, model.head is None))

    def copy_weights(self, checkpoint, model):
        config, table, tied = checkpoint.config, model.embedding.table, model.head is None
        # Our embedding multiplies the rows of its table by the root of the width, T5's does not.
        # Tied logits then agree too: T5 divides by the root before the product with its table.
        root = math.sqrt(model.embedding.hidden_dim)
        checkpoint.transfer(self.table, Fold([table], tuple(table.shape), scales=(1 / root,)))
        if not tied:
            copy_part(checkpoint, model, "head", "lm_head")
        is_scaled = config.flag("scale_decoder_outputs", config.flag("tie_word_embeddings", True))
        gain = model.decoder.norm.scale
        scales = None if is_scaled == tied else (root if tied else 1 / root,)
        folded = Fold([gain], tuple(gain.shape), scales=scales)
        checkpoint.transfer("decoder.final_layer_norm.weight", folded)
        copy_part(checkpoint, model, "encoder.norm", "encoder.final_layer_norm")
        has_gates = self.has_gates[config.get("feed_forward_proj", "relu")]
        for side in SIDES:
            blocks = getattr(model, side).blocks
            self._copy_blocks(checkpoint, blocks, side, self.gated if has_gates else self.plain)

    def _copy_blocks(self, checkpoint, blocks, side, feed_forward):
        name = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        tables = [block.attention.score.terms[-1].table for block in blocks]
        checkpoint.transfer(name, _Copies(tables))
        for index, block in enumerate(blocks):
            prefix = f"{side}.block.{index}."
            copy_table(checkpoint, block, self.self_attention, prefix)
            if side == "decoder":
                copy_table(checkpoint, block, self.cross_attention, prefix)
            last = f"{prefix}layer.{2 if side == 'decoder' else 1}."
            copy_table(checkpoint, block, feed_forward, f"{last}DenseReluDense.")
            copy_part(checkpoint, block, "feed_forward_residual.norm", f"{last}layer_norm")

    def options(self, model):
        has_gates = isinstance(read_part(model, f"{FIRST}.feed_forward"), layers.GatedFeedForward)
        tied = model.head is None
        return {
            **read_options(model, self.paths),
            "feed_forward_proj": "gated-gelu" if has_gates else "relu",
            "is_encoder_decoder": True,
            "tie_word_embeddings": tied,
            "scale_decoder_outputs": tied,
            "architectures": ["T5ForConditionalGeneration"],
        }


class _Copies:
    """The tables of distances of all layers of a side; T5 shares one among them."""

    def __init__(self, tables):
        self.variables, self.shape = tables, tuple(tables[0].shape)

    def assign(self, tensor):
        for table in self.variables:
            table.assign(tensor)

    def tensor(self):
        first, *others = map(numbers, self.variables)
        if not all(np.array_equal(first, other) for other in others):
            raise ValueError(
                "The tables of distances of a side must be equal, since T5 has one for all layers: "
                "train with `block.attention.score.terms[-1].trainable = False`. "
                f"Received: other numbers than those of {self.variables[0].path!r}."
            )
        return first
