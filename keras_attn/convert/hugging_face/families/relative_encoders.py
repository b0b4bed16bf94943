"""Encoders of texts whose scores depend on distances: MPNet, DeBERTa v2 and v3."""

import functools

import keras

from keras_attn import layers, norms, scores
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.families.deberta_distances import (
    DistanceBias,
    DistanceProjection,
    SharedDistanceTable,
    TransientTensor,
)
from keras_attn.convert.hugging_face.families.encoders import (
    BLOCK,
    EMBEDDINGS,
    OPTIONS,
    Bert,
    Roberta,
)
from keras_attn.convert.hugging_face.families.family import FIRST, read_options, read_part
from keras_attn.convert.hugging_face.heads import FEATURES, TOKENS
from keras_attn.convert.hugging_face.weights import (
    Fold,
    SharedTable,
    copy_part,
    copy_table,
    numbers,
)
from keras_attn.depth import Stack


class MPNet(Roberta):
    """MPNet: RoBERTa without segments, with one table of T5's distances for all blocks."""

    name, prefix = "MPNet", "mpnet."
    embeddings = {part: name for part, name in Roberta.embeddings.items() if part != "segment"}
    block = {
        **BLOCK,
        "attention.query": "attention.attn.q",
        "attention.key": "attention.attn.k",
        "attention.value": "attention.attn.v",
        "attention.output": "attention.attn.o",
        "attention_residual.norm": "attention.LayerNorm",
    }
    num_buckets, max_distance = 32, 128

    def arguments(self, config):
        config.require(pad_token_id=1, relative_attention_num_buckets=self.num_buckets)
        distances = scores.T5Bias(self.num_buckets, self.max_distance, bidirectional=True)
        return {**super().arguments(config), "score": scores.DotProduct() + distances}

    def num_segments(self, config):
        return 0

    def copy_embeddings(self, checkpoint, model):
        super().copy_embeddings(checkpoint, model)
        tables = [block.attention.score.terms[-1].table for block in model.encoder.blocks]
        checkpoint.transfer("encoder.relative_attention_bias.weight", SharedTable(tables))

    def fits(self, model):
        """Return True for an encoder with a bias of distances and without segments."""
        score = read_part(model, f"{FIRST}.attention.score")
        has_bias = isinstance(getattr(score, "terms", [None])[-1], scores.T5Bias)
        return has_bias and model.segment is None

    def language_options(self, model):
        paths = {option: path for option, path in OPTIONS.items() if option != "type_vocab_size"}
        options = read_options(model, paths)
        options["max_position_embeddings"] += 2  # rows of padding, and of the id before it
        activation = read_part(model, f"{FIRST}.feed_forward.activation")
        return {**options, "hidden_act": activation_name(activation)}


class DebertaV2(Bert):
    """DeBERTa v2 and v3: BERT with scores of contents and distances, each with the other.

    In transformers all blocks project one table of distances to keys and queries. Here each block
    has its own projected tables, which training unties.
    """

    name, prefix = "DebertaV2", "deberta."
    heads = ("cls.", "lm_predictions.", "pooler.", "classifier", "qa_outputs")
    head_names = {
        **{head: names for head, names in Bert.head_names.items() if head != FEATURES},
        TOKENS: {
            "head.dense": "lm_predictions.lm_head.dense",
            "head.norm": "lm_predictions.lm_head.LayerNorm",
            "head.bias": "lm_predictions.lm_head.bias",
        },
    }
    block = {
        **BLOCK,
        "attention.query": "attention.self.query_proj",
        "attention.key": "attention.self.key_proj",
        "attention.value": "attention.self.value_proj",
    }
    copies = {}
    unread = ("mask_predictions.*",)
    directions = {"c2p": "content_to_position", "p2c": "position_to_content"}

    def convert(self, checkpoint, overrides):
        """Return the model of a checkpoint, whose head for masked tokens has new or old names."""
        config = checkpoint.config
        if not config.flag("position_biased_input", True):
            checkpoint.ignore("*embeddings.position_embeddings.weight")
        if not isinstance(self.score(config), scores.Disentangled):
            checkpoint.ignore("*encoder.rel_embeddings.weight", "*encoder.LayerNorm.*")
        family = _OldDebertaV2() if checkpoint.has("cls.predictions.bias") else self
        return Bert.convert(family, checkpoint, overrides)

    def arguments(self, config):
        width, num_heads = config.size("hidden_size"), config.size("num_attention_heads")
        config.require(
            embedding_size=width, attention_head_size=width // num_heads, pooler_hidden_size=width
        )
        epsilon = config.number("layer_norm_eps", 1e-7)
        convolution = self.convolution(config, epsilon)
        return {
            **super().arguments(config),
            "epsilon": epsilon,
            "position": "learned" if config.flag("position_biased_input", True) else None,
            "score": self.score(config),
            "depth": functools.partial(_stack, convolution),
        }

    def num_segments(self, config):
        return 0 if config.get("type_vocab_size", 0) == 0 else config.size("type_vocab_size")

    def score(self, config):
        """Return the score of each block."""
        value = config.get("pos_att_type", [])
        if not isinstance(value, str):
            value = config.strings("pos_att_type") or []
        kinds = value.lower().split("|") if isinstance(value, str) else value
        kinds = {kind.strip() for kind in kinds} - {""}
        if not kinds <= set(self.directions):
            config.refuse(
                f"`pos_att_type` in config.json must be of {', '.join(self.directions)}, not "
                f"{value!r}."
            )
        kinds = {self.directions[kind] for kind in kinds}
        if not config.flag("relative_attention"):
            config.require(pos_att_type=[])  # which changes the scale
        if not kinds:
            return scores.DotProduct()
        directions = "both" if len(kinds) == 2 else kinds.pop()
        distance, buckets = (
            config.integer(name, -1) for name in ("max_relative_positions", "position_buckets")
        )
        distance = distance if distance >= 1 else config.size("max_position_embeddings")
        if buckets < 1:
            return scores.Disentangled(distance, None, directions)
        if buckets % 2 or buckets < 4 or distance < buckets // 2 + 2:
            config.refuse(
                "`position_buckets` in config.json must be an even number from 4 to "
                f"{2 * distance - 4}, by the largest distance of {distance}, not {buckets}."
            )
        return scores.Disentangled(buckets, distance, directions)

    def convolution(self, config, epsilon):
        """Return the arguments of the `ConvolutionBlock` at the first layer; None without one."""
        size = config.get("conv_kernel_size", 0)
        if size == 0:
            return None
        if config.size("conv_kernel_size") % 2 == 0:
            config.refuse(f"`conv_kernel_size` in config.json must be odd, not {size}.")
        return {
            "kernel_size": size,
            "groups": config.size("conv_groups", 1),
            "activation": config.activation("conv_act", "tanh"),
            "norm": norms.LayerNorm(epsilon),
        }

    def build_pooler(self, head, config):
        activation = config.activation("pooler_hidden_act", "gelu")
        return keras.layers.Dense(config.size("hidden_size"), activation, name="pooler")

    def copy_embeddings(self, checkpoint, model):
        parts = {part: name for part, name in EMBEDDINGS.items() if getattr(model, part)}
        copy_table(checkpoint, model, parts)

    def copy_blocks(self, checkpoint, model):
        super().copy_blocks(checkpoint, model)
        first = read_part(model, FIRST)
        if isinstance(first, layers.ConvolutionBlock):
            copy_part(checkpoint, first, "norm", "encoder.conv.LayerNorm")
            copy_part(checkpoint, first, "convolution.bias", "encoder.conv.conv.bias")
            kernel = first.convolution.kernel
            fold = Fold([kernel], tuple(kernel.shape)[::-1], (2, 1, 0))
            checkpoint.transfer("encoder.conv.conv.weight", fold)
        if isinstance(first.attention.score, scores.Disentangled):
            self.copy_distances(checkpoint, model)

    def copy_distances(self, checkpoint, model):
        """Copy the tables of distances of all blocks, which are projections of one table."""
        config, width = checkpoint.config, model.embedding.hidden_dim
        blocks = [_tables(block.attention) for block in model.encoder.blocks]
        distances = SharedDistanceTable([table for tables in blocks for table, _ in tables], width)
        checkpoint.transfer("encoder.rel_embeddings.weight", distances)
        if "layer_norm" in str(config.get("norm_rel_ebd")).lower():
            gain, shift = TransientTensor((width,)), TransientTensor((width,))
            checkpoint.transfer("encoder.LayerNorm.weight", gain)
            checkpoint.transfer("encoder.LayerNorm.bias", shift)
            distances.normalize(gain.value, shift.value, config.number("layer_norm_eps", 1e-7))
        for index, (block, tables) in enumerate(zip(model.encoder.blocks, blocks, strict=True)):
            for table, projection in tables:
                if config.flag("share_att_key"):
                    distances.project(table, *_weights(block.attention, projection))
                    continue
                name = f"encoder.layer.{index}.attention.self.pos_{projection}_proj"
                checkpoint.transfer(f"{name}.weight", DistanceProjection(table, distances))
                checkpoint.transfer(f"{name}.bias", DistanceBias(table, distances))

    def fits(self, model):
        """Return True for an encoder with a part of DeBERTa, or without one that BERT has."""
        first = read_part(model, FIRST)
        has_convolution = isinstance(first, layers.ConvolutionBlock)
        has_own = has_convolution or isinstance(first.attention.score, scores.Disentangled)
        return has_own or model.segment is None or model.position is None

    def language_options(self, model):
        first = read_part(model, FIRST)
        pooler, score = getattr(model, "pooler", None), first.attention.score
        absent = {"max_position_embeddings": model.position, "type_vocab_size": model.segment}
        paths = {k: path for k, path in OPTIONS.items() if absent.get(k, True) is not None}
        options = {
            **{"max_position_embeddings": 512, "type_vocab_size": 0},
            **read_options(model, paths),
            "hidden_act": activation_name(first.feed_forward.activation),
            "position_biased_input": model.position is not None,
            "pooler_hidden_size": model.embedding.hidden_dim,
            "legacy": False,
        }
        if pooler is not None:
            options["pooler_hidden_act"] = activation_name(pooler.activation)
        if isinstance(first, layers.ConvolutionBlock):
            options |= {
                "conv_kernel_size": first.kernel_size,
                "conv_groups": first.groups,
                "conv_act": activation_name(first.activation),
            }
        if isinstance(score, scores.Disentangled):
            kinds = [k for k, name in self.directions.items() if score.directions in ("both", name)]
            has_buckets = score.max_distance is not None
            options |= {
                "relative_attention": True,
                "pos_att_type": kinds,
                "position_buckets": score.num_buckets if has_buckets else -1,
                "max_relative_positions": score.max_distance or score.num_buckets,
                "share_att_key": False,
                "norm_rel_ebd": "none",
            }
        return options


class _OldDebertaV2(DebertaV2):
    """DeBERTa with the names of BERT's head for masked tokens, and its copy of the table."""

    head_names = {**DebertaV2.head_names, TOKENS: Bert.head_names[TOKENS]}
    copies = Bert.copies


def _stack(convolution, block, num_layers, name):
    """Return a `Stack` whose first block is beside a convolution, unless that is None."""

    def block_of(index):
        made = block(index)
        if index or convolution is None:
            return made
        return layers.ConvolutionBlock(
            made.attention,
            made.feed_forward,
            residual=made.residual,
            dropout=made.dropout,
            **convolution,
        )

    return Stack(block_of, num_layers, name=name)


def _tables(attention):
    """Return pairs of a table of distances and the name of the projection that makes it."""
    pairs = (attention.score.key_table, "key"), (attention.score.query_table, "query")
    return [(table, projection) for table, projection in pairs if table is not None]


def _weights(attention, projection):
    """Return the kernel (D, N H) and the bias of a projection of contents."""
    kernel = numbers(getattr(attention, f"{projection}_kernel"))
    bias = numbers(getattr(attention, f"{projection}_bias"))
    return kernel.reshape(len(kernel), -1), bias.reshape(-1)
