"""Encoders with decoders: BART and Marian, of one builder and one table, and T5."""

import math

import numpy as np

from keras_attn import depth, layers, models, norms, positions, residuals
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.family import (
    FIRST,
    SIDES,
    Family,
    build,
    read_options,
    read_part,
)
from keras_attn.convert.hugging_face.weights import (
    Fold,
    LastRows,
    copy_blocks,
    copy_part,
    copy_table,
    numbers,
)
from keras_attn.ops.shapes import head_size
from keras_attn.patterns.per_layer import pattern_of

BLOCK = {
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.out_proj",
    "attention_residual.norm": "self_attn_layer_norm",
    "feed_forward.intermediate": "fc1",
    "feed_forward.output_dense": "fc2",
    "feed_forward_residual.norm": "final_layer_norm",
}
CROSS_ATTENTION = {
    "cross_attention.query": "encoder_attn.q_proj",
    "cross_attention.key": "encoder_attn.k_proj",
    "cross_attention.value": "encoder_attn.v_proj",
    "cross_attention.output": "encoder_attn.out_proj",
    "cross_attention_residual.norm": "encoder_attn_layer_norm",
}
BIAS = "final_logits_bias"
# The path in the model of each option of `config.json`.
OPTIONS = {
    "vocab_size": "embedding.vocabulary_size",
    "d_model": "embedding.hidden_dim",
    "scale_embedding": "embedding.scaled",
    "dropout": "dropout",
    "attention_dropout": f"{FIRST}.attention.dropout",
}
SIDE_OPTIONS = {
    "layers": "num_layers",
    "attention_heads": "blocks.0.attention.num_heads",
    "ffn_dim": "blocks.0.feed_forward.intermediate_dim",
}


class Marian(Family):
    """Marian, the models of OPUS-MT; without the norm of embeddings that BART has."""

    prefix = "model."
    heads = (BIAS,)
    free = ("start_id",)  # changes the model only if it is the id of padding

    def convert(self, checkpoint, overrides):
        """Return an `EncoderDecoder` with the weights of a checkpoint.

        Targets start with the id of padding.
        """
        checkpoint.ignore("*.embed_positions.weight")  # sinusoids
        return self.read(checkpoint, overrides)

    def read(self, checkpoint, overrides):
        """Return the model with all tensors that the checkpoint has left."""
        checkpoint.strip(self.prefix)
        _drop_copies(checkpoint)
        model = self.build_sides(checkpoint.config, overrides)
        self.copy_weights(checkpoint, model)
        return model

    def parts(self, config):
        """Return the parts of an `EncoderDecoder` by which a family differs, and its `pad_id`."""
        config.require(
            normalize_before=False, add_final_layer_norm=False, normalize_embedding=False
        )
        pad_id = config.index("pad_token_id", None)
        return pad_id, {"position": positions.Sinusoidal(layout="concat")}

    def build_sides(self, config, overrides, has_bias=True):
        """Return an `EncoderDecoder` with the sizes of a configuration.

        Overrides are `pattern`, which is that of the encoder, `dropout` and `name`. Without a bias
        the logits are products with the target's embedding.
        """
        pad_id, parts = self.parts(config)
        width, is_scaled = config.size("d_model"), config.flag("scale_embedding")
        activation = config.activation("activation_function", "gelu")

        def stack(side, pattern, dropout):
            num_heads = config.size(f"{side}_attention_heads")

            def attention(pattern):
                return layers.MultiHeadAttention(
                    num_heads,
                    head_size(width, num_heads),
                    pattern=pattern,
                    dropout=config.number("attention_dropout", 0.0),
                )

            def block(index):
                return layers.TransformerBlock(
                    attention(pattern_of(pattern, index)),
                    layers.FeedForward(config.size(f"{side}_ffn_dim"), activation),
                    cross_attention=attention("dense") if side == "decoder" else None,
                    residual=residuals.PostNorm(norm=norms.LayerNorm(1e-5)),
                    dropout=dropout,
                )

            return depth.Stack(block, config.size(f"{side}_layers"), name=side)

        def build_model(
            pattern="dense",
            dropout=config.number("dropout", 0.1),
            name=config.get("model_type"),
        ):
            embeddings = [
                layers.TokenEmbedding(size, width, is_scaled, pad_id)
                for size in _tables(config).values()
            ]
            return models.EncoderDecoder(
                embedding=embeddings[0],
                encoder=stack("encoder", pattern, dropout),
                decoder=stack("decoder", "causal", dropout),
                dropout=dropout,
                head=layers.TokenHead(embeddings[-1]) if has_bias else None,
                target_embedding=embeddings[-1],
                start_id=config.index("decoder_start_token_id", pad_id),
                name=name,
                **parts,
            )

        return build(build_model, {}, overrides)

    def build(self, config, model):
        return self.build_sides(config, {}, has_bias=model.head is not None)

    def copy_weights(self, checkpoint, model):
        tables = _tables(checkpoint.config)
        for part, table in zip(("embedding", "target_embedding"), tables, strict=False):
            copy_part(checkpoint, model, part, table)
        shape = 1, model.target_embedding.vocabulary_size
        if model.head is None:
            checkpoint.store_zeros(BIAS, shape)
        else:
            checkpoint.transfer(BIAS, Fold([model.head.bias], shape))
        for side in SIDES:
            copy_blocks(checkpoint, getattr(model, side).blocks, BLOCK, f"{side}.layers.{{}}.")
        copy_blocks(checkpoint, model.decoder.blocks, CROSS_ATTENTION, "decoder.layers.{}.")

    def options(self, model):
        return {
            **_side_options(model),
            "share_encoder_decoder_embeddings": model.embedding is model.target_embedding,
            "decoder_vocab_size": model.target_embedding.vocabulary_size,
            "architectures": ["MarianMTModel"],
        }


class Bart(Marian):
    """BART: Marian with learned positions, and a norm after them."""

    first_row = 2  # of the tables of positions, that of position 0

    def convert(self, checkpoint, overrides):
        """Return an `EncoderDecoder` with the weights of a checkpoint."""
        return self.read(checkpoint, overrides)

    def parts(self, config):
        config.require(normalize_before=False, add_final_layer_norm=False, normalize_embedding=True)
        length = config.size("max_position_embeddings", 1024)
        return config.index("pad_token_id", 1), {
            "position": positions.Learned(length),
            "source_position": positions.Learned(length),
            "norm": norms.LayerNorm(1e-5),
        }

    def copy_weights(self, checkpoint, model):
        super().copy_weights(checkpoint, model)
        parts = (model.source_position, model.norm), (model.position, model.target_norm)
        for side, (position, norm) in zip(SIDES, parts, strict=True):
            rows = LastRows(position.table, self.first_row)
            checkpoint.transfer(f"{side}.embed_positions.weight", rows)
            copy_part(checkpoint, norm, "", f"{side}.layernorm_embedding")

    def options(self, model):
        return {
            **_side_options(model),
            "max_position_embeddings": read_part(model, "position.max_length"),
            "architectures": ["BartForConditionalGeneration"],
        }


def _side_options(model):
    """Return the options of `config.json` that the families share."""
    sides = {
        f"{side}_{option}": f"{side}.{path}"
        for side in SIDES
        for option, path in SIDE_OPTIONS.items()
    }
    activation = activation_name(read_part(model, f"{FIRST}.feed_forward.activation"))
    return {
        **read_options(model, {**OPTIONS, **sides}),
        "activation_function": activation,
        "is_encoder_decoder": True,
    }


def _drop_copies(checkpoint):
    """Leave out stored copies of the token tables."""
    names = [*_tables(checkpoint.config)]
    copies = ["lm_head", *(f"{side}.embed_tokens" for side in SIDES)]
    for copy in copies:
        if copy not in names:
            checkpoint.drop_copy(f"{copy}.weight", f"{names[-1]}.weight")


def _tables(config):
    """Return the sizes of the token tables by name: a shared one, or one of each side."""
    size = config.size("vocab_size")
    if config.flag("share_encoder_decoder_embeddings", True):  # an option of Marian
        return {"shared": size}
    sizes = size, config.size("decoder_vocab_size", size)
    return {f"{side}.embed_tokens": size for side, size in zip(SIDES, sizes, strict=True)}


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
