"""Encoders of texts: BERT, BigBird, DistilBERT, RoBERTa and its kin, and Longformer."""

import keras
import numpy as np

from keras_attn import layers, models
from keras_attn.compat.unallocated import assign
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.families.encoder_family import EncoderFamily
from keras_attn.convert.hugging_face.families.family import (
    ENCODER_OPTIONS,
    FIRST,
    build,
    read_options,
    read_part,
    read_sizes,
)
from keras_attn.convert.hugging_face.heads import (
    ANSWERS,
    CLASSES,
    FEATURES,
    TAGS,
    TOKENS,
    head_of,
)
from keras_attn.convert.hugging_face.weights import LastRows, numbers
from keras_attn.ops.activations import get_activation

TABLE = "embeddings.word_embeddings"
POSITIONS = "embeddings.position_embeddings"
EMBEDDINGS = {
    "embedding": TABLE,
    "position": POSITIONS,
    "segment": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
}
BLOCK = {
    "attention.query": "attention.self.query",
    "attention.key": "attention.self.key",
    "attention.value": "attention.self.value",
    "attention.output": "attention.output.dense",
    "attention_residual.norm": "attention.output.LayerNorm",
    "feed_forward.intermediate": "intermediate.dense",
    "feed_forward.output_dense": "output.dense",
    "feed_forward_residual.norm": "output.LayerNorm",
}
# The path in the model of each option of `config.json`.
OPTIONS = {
    **ENCODER_OPTIONS,
    "vocab_size": "embedding.vocabulary_size",
    "max_position_embeddings": "position.max_length",
    "type_vocab_size": "segment.num_segments",
}


class Bert(EncoderFamily):
    """BERT."""

    name, prefix = "Bert", "bert."
    heads = ("cls.", "classifier", "qa_outputs")
    head_names = {
        TOKENS: {
            "head.dense": "cls.predictions.transform.dense",
            "head.norm": "cls.predictions.transform.LayerNorm",
            "head.bias": "cls.predictions.bias",
        },
        CLASSES: {"pooler": "pooler.dense", "head": "classifier"},
        TAGS: {"head": "classifier"},
        ANSWERS: {"head": "qa_outputs"},
        FEATURES: {"pooler": "pooler.dense"},
    }
    embeddings, block = EMBEDDINGS, BLOCK
    copies = {
        "cls.predictions.decoder.weight": f"{TABLE}.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    unread = ("cls.seq_relationship.*",)

    def arguments(self, config):
        """Return the arguments of `models.bert` for a configuration."""
        config.require(position_embedding_type="absolute")
        return {
            "vocabulary_size": config.size("vocab_size"),
            **read_sizes(config),
            "dropout": config.number("hidden_dropout_prob", 0.1),
            "max_length": config.size("max_position_embeddings"),
            "num_segments": self.num_segments(config),
            "activation": config.activation("hidden_act", "gelu"),
            "epsilon": config.number("layer_norm_eps", 1e-12),
            "pad_id": config.index("pad_token_id", 0),
        }

    def num_segments(self, config):
        """Return the number of segments of a text; 0 for none."""
        return config.size("type_vocab_size", 2)

    def language_options(self, model):
        return {
            **read_options(model, OPTIONS),
            "hidden_act": activation_name(read_part(model, f"{FIRST}.feed_forward.activation")),
        }


def is_scaled(model):
    """Return True for a BigBird by its embeddings: no other encoder here multiplies them."""
    return getattr(model.embedding, "scaled", False)


class BigBird(Bert):
    """BigBird with full attention: BERT with other names of the heads."""

    name = "BigBird"
    head_names = {
        TOKENS: Bert.head_names[TOKENS],
        CLASSES: {"pooler": "classifier.dense", "head": "classifier.out_proj"},
        TAGS: {"head": "classifier"},
        FEATURES: {"pooler": "pooler"},
    }
    stores_pooler = TOKENS, CLASSES, TAGS, FEATURES

    def build_pooler(self, head, config):
        width, activation = config.size("hidden_size"), self.arguments(config)["activation"]
        return keras.layers.Dense(width, activation if head == CLASSES else "tanh", name="pooler")

    def arguments(self, config):
        config.require(use_bias=True)
        length = min(config.size("max_position_embeddings"), self.full_length(config))
        return {
            **super().arguments(config),
            "activation": config.activation("hidden_act", "gelu_new"),
            "max_length": length,
            "scaled": config.flag("rescale_embeddings"),
        }

    def full_length(self, config):
        """Return the number of tokens up to which transformers computes full attention."""
        kind = config.get("attention_type", "block_sparse")
        if kind == "original_full":
            return config.size("max_position_embeddings")
        config.require(attention_type="block_sparse")
        blocks = 5 + 2 * config.size("num_random_blocks", 3)
        return blocks * config.size("block_size", 64)

    def fits(self, model):
        """Return True for an encoder that is no BERT by its embeddings or its classifier."""
        pooler = getattr(model, "pooler", None)
        has_own = pooler is not None and pooler.activation is not get_activation("tanh")
        return has_own or is_scaled(model)

    def language_options(self, model):
        activation = read_part(model, f"{FIRST}.feed_forward.activation")
        return {
            **read_options(model, OPTIONS),
            "hidden_act": activation_name(activation, tanh="gelu_new"),
            "attention_type": "original_full",
            "rescale_embeddings": model.embedding.scaled,
        }


class Roberta(Bert):
    """RoBERTa: BERT with other ids, whose positions begin after that of padding."""

    name, prefix = "Roberta", "roberta."
    heads = ("lm_head.", "classifier", "qa_outputs")
    head_names = {
        **Bert.head_names,
        TOKENS: {
            "head.dense": "lm_head.dense",
            "head.norm": "lm_head.layer_norm",
            "head.bias": "lm_head.bias",
        },
        CLASSES: {"pooler": "classifier.dense", "head": "classifier.out_proj"},
    }
    embeddings = {part: name for part, name in EMBEDDINGS.items() if part != "position"}
    copies = {"lm_head.decoder.weight": f"{TABLE}.weight", "lm_head.decoder.bias": "lm_head.bias"}

    def arguments(self, config):
        arguments = {**super().arguments(config), "pad_id": config.index("pad_token_id", 1)}
        arguments["max_length"] -= self.first_position(config)
        return {**arguments, "head_activation": "gelu"}  # whatever `hidden_act` says

    def first_position(self, config):
        """Return the row of the first position in the table, which is after that of padding."""
        return config.index("pad_token_id", 1) + 1

    def copy_embeddings(self, checkpoint, model):
        super().copy_embeddings(checkpoint, model)
        rows = LastRows(model.position.table, self.first_position(checkpoint.config))
        checkpoint.transfer(f"{POSITIONS}.weight", rows)

    def fits(self, model):
        """Return True for an encoder with RoBERTa's id of padding, and the activations of its head.

        BERT has these parts too, but another id of padding, and one activation.
        """
        pooler, gelu = getattr(model, "pooler", None), get_activation("gelu")
        if is_scaled(model):
            return False
        if head_of(model) == TOKENS:
            has_own = read_part(model, f"{FIRST}.feed_forward.activation") is not gelu
            return model.head.activation is gelu and (has_own or model.embedding.pad_id == 1)
        is_tanh = pooler is None or pooler.activation is get_activation("tanh")
        return is_tanh and model.embedding.pad_id == 1

    def language_options(self, model):
        options = super().language_options(model)
        if model.embedding.pad_id is None:
            raise ValueError(
                f"A {self.name} of transformers must have an id of padding, after which positions "
                "are counted. Received: model.embedding.pad_id=None."
            )
        options["max_position_embeddings"] += model.embedding.pad_id + 1
        return options


class XLMRoberta(Roberta):
    """XLM-RoBERTa: RoBERTa of many languages."""

    name = "XLMRoberta"


class Camembert(Roberta):
    """CamemBERT: RoBERTa of French."""

    name = "Camembert"


class Longformer(Roberta):
    """Longformer: RoBERTa with windows, and second projections for global tokens.

    As by default in transformers, the first token of a classifier is global, and else none is. For
    answers the tokens of the question are, of which the user gives the number.
    """

    name, prefix = "Longformer", "longformer."
    block = {
        **BLOCK,
        "attention.global_query": "attention.self.query_global",
        "attention.global_key": "attention.self.key_global",
        "attention.global_value": "attention.self.value_global",
    }

    def build_masked(self, arguments, overrides, head):
        if head == ANSWERS and "num_global" not in overrides:
            raise ValueError(
                "A Longformer with answers needs `num_global`, the number of tokens before the "
                "first separator: questions have so many in all texts. Received: none."
            )
        arguments = {**arguments, "num_global": int(head == CLASSES)}
        return build(models.longformer, arguments, overrides)

    def arguments(self, config):
        """Return the arguments of `models.longformer` for a configuration, but `num_global`."""
        config.require(hidden_act="gelu")
        arguments = {**super().arguments(config), "global_projections": True}
        del arguments["activation"], arguments["head_activation"]  # GELU
        arguments["window"] = self.windows(config, arguments["num_layers"])
        return arguments

    def windows(self, config, num_layers):
        """Return the width of each layer's window."""
        widths = config.get("attention_window", 512)
        widths = widths if isinstance(widths, list) else [widths] * num_layers
        are_even = all(isinstance(width, int) and width > 0 and width % 2 == 0 for width in widths)
        if len(widths) != num_layers or not are_even:
            config.refuse(
                "`attention_window` in config.json must be an even number above 0, or one for each "
                f"of {num_layers} layers, not {config.get('attention_window')!r}."
            )
        return tuple(widths)

    def fits(self, model):
        """Return True for an encoder whose global tokens have projections of their own."""
        first = next(iter(getattr(model.encoder, "blocks", ())), None)
        return isinstance(getattr(first, "attention", None), layers.GlobalAttention)

    def language_options(self, model):
        """Return the options of `config.json`; each call gives the global tokens there."""
        windows = [_window(block) for block in model.encoder.blocks]
        return {**super().language_options(model), "attention_window": windows}

    def build(self, config, model):
        num_global = read_part(model, f"{FIRST}.attention.num_global")
        return self.build_alike(config, model, {"num_global": num_global})


def _window(block):
    """Return the width of the window in a union of patterns, or of a layer without one."""
    local = read_part(block, "attention.pattern.first")
    return 2 * (read_part(local, "window") - 1)


DISTILBERT_BLOCK = {
    "attention.query": "attention.q_lin",
    "attention.key": "attention.k_lin",
    "attention.value": "attention.v_lin",
    "attention.output": "attention.out_lin",
    "attention_residual.norm": "sa_layer_norm",
    "feed_forward.intermediate": "ffn.lin1",
    "feed_forward.output_dense": "ffn.lin2",
    "feed_forward_residual.norm": "output_layer_norm",
}


class DistilBert(Bert):
    """DistilBERT: BERT without segments."""

    name, prefix = "DistilBert", "distilbert."
    heads = ("vocab_", "pre_classifier", "classifier", "qa_outputs")
    head_names = {
        TOKENS: {
            "head.dense": "vocab_transform",
            "head.norm": "vocab_layer_norm",
            "head.bias": "vocab_projector.bias",
        },
        CLASSES: {"pooler": "pre_classifier", "head": "classifier"},
        TAGS: {"head": "classifier"},
        ANSWERS: {"head": "qa_outputs"},
    }
    epsilon = 1e-12
    embeddings = {"embedding": TABLE, "norm": "embeddings.LayerNorm"}
    block, block_prefix = DISTILBERT_BLOCK, "transformer.layer.{}."
    copies = {"vocab_projector.weight": f"{TABLE}.weight"}
    unread = ()
    # The path in the model of each option of `config.json`.
    paths = {
        "vocab_size": "embedding.vocabulary_size",
        "n_layers": "encoder.num_layers",
        "n_heads": f"{FIRST}.attention.num_heads",
        "dim": "embedding.hidden_dim",
        "hidden_dim": f"{FIRST}.feed_forward.intermediate_dim",
        "dropout": "dropout",
        "attention_dropout": f"{FIRST}.attention.dropout",
        "max_position_embeddings": "position.max_length",
    }

    def build_pooler(self, head, config):
        return keras.layers.Dense(config.size("dim"), "relu", name="pooler")

    def arguments(self, config):
        return {
            "vocabulary_size": config.size("vocab_size"),
            "num_layers": config.size("n_layers"),
            "num_heads": config.size("n_heads"),
            "hidden_dim": config.size("dim"),
            "intermediate_dim": config.size("hidden_dim"),
            "dropout": config.number("dropout", 0.1),
            "max_length": config.size("max_position_embeddings"),
            "num_segments": 1,
            "activation": config.activation("activation", "gelu"),
            "epsilon": self.epsilon,
            "pad_id": config.index("pad_token_id", 0),
        }

    def copy_embeddings(self, checkpoint, model):
        super().copy_embeddings(checkpoint, model)
        checkpoint.transfer(f"{POSITIONS}.weight", _PositionsWithSegment(model))

    def fits(self, model):
        """Return True for an encoder with one segment and DistilBERT's pooler, if any."""
        has_one_segment = read_part(model, "segment.num_segments") == 1
        if is_scaled(model) or not has_one_segment or model.norm.epsilon != self.epsilon:
            return False
        pooler = getattr(model, "pooler", None)
        if pooler is None:
            return getattr(model, "num_classes", None) is None
        return pooler.activation is get_activation("relu")

    def language_options(self, model):
        return {
            **read_options(model, self.paths),
            "activation": activation_name(read_part(model, f"{FIRST}.feed_forward.activation")),
        }


class _PositionsWithSegment:
    """The table of positions; the vector of the model's only segment is added when it is stored."""

    def __init__(self, model):
        self.table, self.segment = model.position.table, model.segment.table
        self.shape = tuple(self.table.shape)

    def assign(self, tensor):
        assign(self.table, tensor)
        assign(self.segment, np.zeros(self.segment.shape))

    def tensor(self):
        return numbers(self.table) + numbers(self.segment)
