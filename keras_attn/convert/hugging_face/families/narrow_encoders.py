"""Encoders of texts with narrow embeddings: ALBERT, whose blocks share weights, and ELECTRA."""

import functools

import keras

from keras_attn import layers
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.families.encoders import (
    EMBEDDINGS,
    OPTIONS,
    TABLE,
    Bert,
    is_scaled,
)
from keras_attn.convert.hugging_face.families.family import FIRST, read_options, read_part
from keras_attn.convert.hugging_face.heads import (
    ANSWERS,
    CLASSES,
    FEATURES,
    REPLACED,
    TAGS,
    TOKENS,
)
from keras_attn.convert.hugging_face.weights import copy_blocks, copy_part, copy_table
from keras_attn.depth import Recurrent, Stack
from keras_attn.ops.activations import get_activation

# The path in the model of each option of `config.json`, where embeddings have a width of their own.
NARROW = {**OPTIONS, "embedding_size": "embedding.hidden_dim", "hidden_size": "norm.hidden_dim"}
NARROW_EMBEDDINGS = {
    {"norm": "norm.norm"}.get(part, part): name for part, name in EMBEDDINGS.items()
}


class Albert(Bert):
    """ALBERT: BERT with narrow embeddings, in which all layers of a group are the same blocks."""

    name, prefix = "Albert", "albert."
    heads = ("predictions.", "classifier", "qa_outputs")
    head_names = {
        TOKENS: {
            "head.dense": "predictions.dense",
            "head.norm": "predictions.LayerNorm",
            "head.bias": "predictions.bias",
        },
        CLASSES: {"pooler": "pooler", "head": "classifier"},
        TAGS: {"head": "classifier"},
        ANSWERS: {"head": "qa_outputs"},
        FEATURES: {"pooler": "pooler"},
    }
    embeddings = {**NARROW_EMBEDDINGS, "norm.dense": "encoder.embedding_hidden_mapping_in"}
    block = {
        "attention.query": "attention.query",
        "attention.key": "attention.key",
        "attention.value": "attention.value",
        "attention.output": "attention.dense",
        "attention_residual.norm": "attention.LayerNorm",
        "feed_forward.intermediate": "ffn",
        "feed_forward.output_dense": "ffn_output",
        "feed_forward_residual.norm": "full_layer_layer_norm",
    }
    copies = {
        "predictions.decoder.weight": f"{TABLE}.weight",
        "predictions.decoder.bias": "predictions.bias",
    }
    unread = ("sop_classifier.*", "pooler.*")  # for the order of sentences

    def arguments(self, config):
        groups = config.size("num_hidden_groups", 1), config.size("inner_group_num", 1)
        num_layers = config.size("num_hidden_layers")
        if groups[0] > num_layers:
            config.refuse(
                "`num_hidden_groups` in config.json must be at most the number of layers, "
                f"{num_layers}, not {groups[0]}."
            )
        return {
            **super().arguments(config),
            "activation": config.activation("hidden_act", "gelu_new"),
            "dropout": config.number("hidden_dropout_prob", 0.0),
            "embedding_dim": config.size("embedding_size", 128),
            "depth": functools.partial(_repeat_groups, groups),
        }

    def copy_blocks(self, checkpoint, model):
        for index, blocks in enumerate(map(_blocks_of, _groups_of(model.encoder))):
            prefix = f"encoder.albert_layer_groups.{index}.albert_layers.{{}}."
            copy_blocks(checkpoint, blocks, self.block, prefix)

    def fits(self, model):
        """Return True for an encoder of blocks that are repeated."""
        return all(isinstance(group, Recurrent) for group in _groups_of(model.encoder))

    def language_options(self, model):
        groups = _groups_of(model.encoder)
        first = "encoder.block" if groups[0] is model.encoder else f"{FIRST}.block"
        if isinstance(groups[0].block, Stack):
            first = f"{first}.blocks.0"
        paths = {option: path.replace(FIRST, first) for option, path in NARROW.items()}
        activation = read_part(model, f"{first}.feed_forward.activation")
        return {
            **read_options(model, paths),
            "num_hidden_layers": sum(group.num_steps for group in groups),
            "num_hidden_groups": len(groups),
            "inner_group_num": len(_blocks_of(groups[0])),
            "hidden_act": activation_name(activation, tanh="gelu_new"),
        }


def _repeat_groups(groups, block, num_layers, name):
    """Return a depth of groups of blocks, each repeated by consecutive layers.

    Args:
        groups: number of groups, and of blocks in each.
        block: function from an index to a block.
        num_layers: int. Number of layers, each of which runs all blocks of a group.
        name: str. Name of the depth.
    """
    num_groups, size = groups
    # With the rounding of transformers.
    group_of_layer = [int(i / (num_layers / num_groups)) for i in range(num_layers)]

    def repeated(group, **name):
        blocks = [block(group * size + index) for index in range(size)]
        step = blocks[0] if size == 1 else Stack(blocks)
        return Recurrent(step, group_of_layer.count(group), **name)

    if num_groups == 1:
        return repeated(0, name=name)
    return Stack([repeated(group) for group in range(num_groups)], name=name)


def _groups_of(encoder):
    """Return the groups of an encoder, each a `Recurrent` in ALBERT."""
    return [encoder] if isinstance(encoder, Recurrent) else getattr(encoder, "blocks", [encoder])


def _blocks_of(group):
    """Return the blocks of a group."""
    return group.block.blocks if isinstance(group.block, Stack) else [group.block]


class Electra(Bert):
    """ELECTRA: BERT with narrow embeddings, whose discriminator finds tokens that were replaced."""

    name, prefix = "Electra", "electra."
    heads = ("generator_", "discriminator_", "classifier", "qa_outputs")
    head_names = {
        TOKENS: {
            "head.dense": "generator_predictions.dense",
            "head.norm": "generator_predictions.LayerNorm",
            "head.bias": "generator_lm_head.bias",
        },
        REPLACED: {
            "head.transform.dense": "discriminator_predictions.dense",
            "head.head": "discriminator_predictions.dense_prediction",
        },
        CLASSES: {"pooler": "classifier.dense", "head": "classifier.out_proj"},
        TAGS: {"head": "classifier"},
        ANSWERS: {"head": "qa_outputs"},
    }
    copies = {"generator_lm_head.weight": f"{TABLE}.weight"}
    unread = ()

    def arguments(self, config):
        width = config.size("embedding_size", 128)
        return {
            **super().arguments(config),
            "embedding_dim": None if width == config.size("hidden_size") else width,
            "head_activation": "gelu",  # whatever `hidden_act` says
        }

    def build_pooler(self, head, config):
        width = config.size("hidden_size")
        if head == REPLACED:
            activation = config.activation("hidden_act", "gelu")
            return layers.HeadTransform(width, activation, name="transform")
        return keras.layers.Dense(width, "gelu", name="pooler")

    def copy_embeddings(self, checkpoint, model):
        is_narrow = isinstance(model.norm, layers.EmbeddingProjection)
        copy_table(checkpoint, model, NARROW_EMBEDDINGS if is_narrow else self.embeddings)
        if is_narrow:
            copy_part(checkpoint, model, "norm.dense", "embeddings_project")

    def head_of(self, model):
        is_transformed = isinstance(model.head, layers.TransformedHead)
        return REPLACED if is_transformed else super().head_of(model)

    def fits(self, model):
        """Return True for an encoder with narrow embeddings or one of ELECTRA's heads."""
        pooler = getattr(model, "pooler", None)
        has_gelu = pooler is not None and pooler.activation is get_activation("gelu")
        is_narrow = isinstance(model.norm, layers.EmbeddingProjection)
        has_own_head = has_gelu or isinstance(model.head, layers.TransformedHead)
        return not is_scaled(model) and (is_narrow or has_own_head)

    def language_options(self, model):
        is_narrow = isinstance(model.norm, layers.EmbeddingProjection)
        same = {**NARROW, "hidden_size": NARROW["embedding_size"]}
        activation = read_part(model, f"{FIRST}.feed_forward.activation")
        options = read_options(model, NARROW if is_narrow else same)
        return {**options, "hidden_act": activation_name(activation)}

    def options(self, model):
        if self.head_of(model) == REPLACED:
            return {**self.language_options(model), "architectures": ["ElectraForPreTraining"]}
        return super().options(model)
