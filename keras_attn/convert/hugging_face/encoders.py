"""Encoders of texts: BERT, BigBird, DistilBERT, RoBERTa and Longformer."""

import numpy as np

from keras_attn import layers, models
from keras_attn.convert.hugging_face.classifiers import (
    build_alike,
    copy_classifier,
    head_options,
    pooling_files,
    read_classifier,
)
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.family import (
    ENCODER_OPTIONS,
    FIRST,
    Family,
    build,
    read_options,
    read_part,
)
from keras_attn.convert.hugging_face.weights import (
    LastRows,
    copy_blocks,
    copy_table,
    numbers,
)
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


class Bert(Family):
    """BERT."""

    prefix = "bert."
    heads = ("cls.", "classifier")
    head = {
        "head.dense": "cls.predictions.transform.dense",
        "head.norm": "cls.predictions.transform.LayerNorm",
        "head.bias": "cls.predictions.bias",
    }
    # Names of the linear layers of a classifier, and of an encoder without one.
    classifier = features = "pooler.dense", "classifier"

    def convert(self, checkpoint, overrides):
        """Return a `MaskedLanguageModel` or a `Classifier` with the weights of a checkpoint."""
        _strip_bert(checkpoint)
        arguments = self.arguments(checkpoint.config)
        model = build(models.bert, arguments, overrides)
        checkpoint.repeat_positions(f"{POSITIONS}.weight", arguments["max_length"], overrides)
        if checkpoint.has("cls.predictions.bias"):
            checkpoint.ignore("cls.seq_relationship.*", "pooler.*")  # for next sentence prediction
        else:
            model = read_classifier(checkpoint, model, *self.classifier)
        self.copy_weights(checkpoint, model)
        return model

    def arguments(self, config):
        """Return the arguments of `models.bert` for a configuration."""
        config.require(position_embedding_type="absolute")
        return {
            "vocabulary_size": config.size("vocab_size"),
            "num_layers": config.size("num_hidden_layers"),
            "num_heads": config.size("num_attention_heads"),
            "hidden_dim": config.size("hidden_size"),
            "intermediate_dim": config.size("intermediate_size"),
            "dropout": config.number("hidden_dropout_prob", 0.1),
            "max_length": config.size("max_position_embeddings"),
            "num_segments": config.size("type_vocab_size", 2),
            "activation": config.activation("hidden_act", "gelu"),
            "epsilon": config.number("layer_norm_eps", 1e-12),
            "pad_id": config.index("pad_token_id", 0),
        }

    def copy_weights(self, checkpoint, model):
        copy_table(checkpoint, model, EMBEDDINGS)
        copy_blocks(checkpoint, model.encoder.blocks, BLOCK, "encoder.layer.{}.")
        self.copy_head(checkpoint, model)

    def copy_head(self, checkpoint, model):
        """Copy the tensors of the head for masked tokens, or of the pooler and the classifier."""
        if not isinstance(model, models.Classifier):
            return copy_table(checkpoint, model, self.head)
        names = self.features if model.num_classes is None else self.classifier
        if model.num_classes is None and model.pooler is None:  # transformers has one even so
            fill_pooler(checkpoint, model, names[0])
        else:
            copy_classifier(checkpoint, model, *names)

    def options(self, model):
        return {
            **read_options(model, OPTIONS),
            "hidden_act": activation_name(read_part(model, f"{FIRST}.feed_forward.activation")),
            **head_options(model, "Bert"),
        }

    def build(self, config, model):
        return build_alike(models.bert(**self.arguments(config)), model, "tanh")

    def files(self, model):
        return pooling_files(model)


def _strip_bert(checkpoint):
    """Remove the prefix of BERT's names, and the copies of tied weights."""
    checkpoint.strip("bert.")
    checkpoint.drop_copy("cls.predictions.decoder.weight", f"{TABLE}.weight")
    checkpoint.drop_copy("cls.predictions.decoder.bias", "cls.predictions.bias")


def fill_pooler(checkpoint, model, name):
    """Leave out a pooler that nothing of ours reads, or store zeros for it."""
    width = model.embedding.hidden_dim
    checkpoint.store_zeros(f"{name}.weight", (width, width))
    checkpoint.store_zeros(f"{name}.bias", (width,))


class BigBird(Bert):
    """BigBird: BERT with other names of the heads, where its attention is full."""

    pooler = "pooler"
    classifier = "classifier.dense", "classifier.out_proj"
    features = pooler, classifier[1]

    def convert(self, checkpoint, overrides):
        """Return a `MaskedLanguageModel` or a `Classifier` with the weights of a checkpoint.

        It has as many positions as transformers computes by full attention.
        """
        _strip_bert(checkpoint)
        config = checkpoint.config
        arguments = self.arguments(config)
        model = build(models.bert, arguments, overrides)
        trained, length = config.size("max_position_embeddings"), model.position.max_length
        checkpoint.repeat_positions(f"{POSITIONS}.weight", trained, {"max_length": length})
        if checkpoint.has("cls.predictions.bias"):
            checkpoint.ignore("cls.seq_relationship.*")  # of the pretraining's other task
        elif checkpoint.has(f"{self.classifier[1]}.weight"):
            activation = arguments["activation"]
            model = read_classifier(checkpoint, model, *self.classifier, activation)
        else:
            model = read_classifier(checkpoint, model, *self.features)
        self.copy_weights(checkpoint, model)
        return model

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

    def copy_head(self, checkpoint, model):
        has_features = isinstance(model, models.Classifier) and model.num_classes is None
        if not has_features or model.pooler is None:  # every class has one, and few read it
            fill_pooler(checkpoint, model, self.pooler)
        if not has_features or model.pooler is not None:
            super().copy_head(checkpoint, model)

    def fits(self, model):
        """Return True for an encoder that is no BERT by its embeddings or by its classifier."""
        if getattr(model.embedding, "scaled", False):
            return True
        pooler = getattr(model, "pooler", None)
        return pooler is not None and pooler.activation is not get_activation("tanh")

    def options(self, model):
        activation = read_part(model, f"{FIRST}.feed_forward.activation")
        return {
            **read_options(model, OPTIONS),
            "hidden_act": activation_name(activation, tanh="gelu_new"),
            "attention_type": "original_full",
            "rescale_embeddings": model.embedding.scaled,
            **head_options(model, "BigBird"),
        }

    def build(self, config, model):
        arguments = self.arguments(config)
        has_classes = getattr(model, "num_classes", None) is not None
        activation = arguments["activation"] if has_classes else "tanh"
        return build_alike(models.bert(**arguments), model, activation)


class Roberta(Bert):
    """RoBERTa: BERT with other ids, whose positions begin after that of padding."""

    prefix = "roberta."
    block = BLOCK
    table = {part: name for part, name in EMBEDDINGS.items() if part != "position"}
    head = {
        "head.dense": "lm_head.dense",
        "head.norm": "lm_head.layer_norm",
        "head.bias": "lm_head.bias",
    }
    classifier = "classifier.dense", "classifier.out_proj"
    features = "pooler.dense", classifier[1]

    def convert(self, checkpoint, overrides):
        """Return a `MaskedLanguageModel` or a `Classifier` with the weights of a checkpoint.

        It counts positions of real tokens; in rows with padding at the end these are ours.
        """
        checkpoint.strip(self.prefix)
        checkpoint.drop_copy("lm_head.decoder.weight", f"{TABLE}.weight")
        checkpoint.drop_copy("lm_head.decoder.bias", "lm_head.bias")
        arguments = self.arguments(checkpoint.config)
        is_classifier = checkpoint.has(f"{self.classifier[1]}.weight")
        model = self.build_masked(arguments, overrides, is_classifier)
        first = self.first_position(checkpoint.config)
        checkpoint.repeat_positions(
            f"{POSITIONS}.weight", arguments["max_length"], overrides, first
        )
        if checkpoint.has("lm_head.bias"):
            checkpoint.ignore("pooler.*")
        else:
            names = self.classifier if is_classifier else self.features
            model = read_classifier(checkpoint, model, *names)
        self.copy_weights(checkpoint, model)
        return model

    def build_masked(self, arguments, overrides, is_classifier):
        """Return the `MaskedLanguageModel` of the arguments."""
        return build(models.bert, arguments, overrides)

    def arguments(self, config):
        config.require(hidden_act="gelu")  # the head's, whatever the option says
        arguments = {**super().arguments(config), "pad_id": config.index("pad_token_id", 1)}
        arguments["max_length"] -= self.first_position(config)
        return arguments

    def first_position(self, config):
        """Return the row of the first position in the table, which is after that of padding."""
        return config.index("pad_token_id", 1) + 1

    def copy_weights(self, checkpoint, model):
        copy_table(checkpoint, model, self.table)
        copy_blocks(checkpoint, model.encoder.blocks, self.block, "encoder.layer.{}.")
        rows = LastRows(model.position.table, self.first_position(checkpoint.config))
        checkpoint.transfer(f"{POSITIONS}.weight", rows)
        self.copy_head(checkpoint, model)


class Longformer(Roberta):
    """Longformer: RoBERTa with windows, and second projections for global tokens.

    As by default in transformers, the first token of a classifier is global, and else none is.
    """

    prefix = "longformer."
    heads = ("lm_head.", "classifier")
    block = {
        **BLOCK,
        "attention.global_query": "attention.self.query_global",
        "attention.global_key": "attention.self.key_global",
        "attention.global_value": "attention.self.value_global",
    }

    def build_masked(self, arguments, overrides, is_classifier):
        arguments = {**arguments, "num_global": int(is_classifier)}
        return build(models.longformer, arguments, overrides)

    def arguments(self, config):
        """Return the arguments of `models.longformer` for a configuration, but `num_global`."""
        arguments = {**super().arguments(config), "global_projections": True}
        del arguments["activation"]  # that of RoBERTa
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

    def options(self, model):
        """Return the options of `config.json`; each call gives the global tokens there."""
        options = {
            **read_options(model, OPTIONS),
            "hidden_act": activation_name(read_part(model, f"{FIRST}.feed_forward.activation")),
            "attention_window": [_window(block) for block in model.encoder.blocks],
            **head_options(model, "Longformer"),
        }
        if model.embedding.pad_id is None:
            raise ValueError(
                "A Longformer of transformers must have an id of padding, after which positions "
                "are counted. Received: model.embedding.pad_id=None."
            )
        options["max_position_embeddings"] += model.embedding.pad_id + 1
        return options

    def build(self, config, model):
        num_global = read_part(model, f"{FIRST}.attention.num_global")
        masked = models.longformer(**self.arguments(config), num_global=num_global)
        return build_alike(masked, model, "tanh")


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

    prefix = "distilbert."
    heads = ("vocab_", "pre_classifier", "classifier")
    classifier = "pre_classifier", "classifier"
    epsilon, pooler_activation = 1e-12, "relu"
    table = {"embedding": TABLE, "norm": "embeddings.LayerNorm"}
    head = {
        "head.dense": "vocab_transform",
        "head.norm": "vocab_layer_norm",
        "head.bias": "vocab_projector.bias",
    }
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

    def convert(self, checkpoint, overrides):
        checkpoint.strip("distilbert.")
        checkpoint.drop_copy("vocab_projector.weight", f"{TABLE}.weight")
        arguments = self.arguments(checkpoint.config)
        model = build(models.bert, arguments, overrides)
        checkpoint.repeat_positions(f"{POSITIONS}.weight", arguments["max_length"], overrides)
        if not checkpoint.has("vocab_projector.bias"):
            model = read_classifier(checkpoint, model, *self.classifier, self.pooler_activation)
        self.copy_weights(checkpoint, model)
        return model

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

    def copy_weights(self, checkpoint, model):
        copy_table(checkpoint, model, self.table)
        checkpoint.transfer(f"{POSITIONS}.weight", _PositionsWithSegment(model))
        copy_blocks(checkpoint, model.encoder.blocks, DISTILBERT_BLOCK, "transformer.layer.{}.")
        if isinstance(model, models.Classifier):
            copy_classifier(checkpoint, model, *self.classifier)
        else:
            copy_table(checkpoint, model, self.head)

    def fits(self, model):
        """Return True for an encoder with one segment and, if it has a pooler, DistilBERT's."""
        if read_part(model, "segment.num_segments") != 1 or model.norm.epsilon != self.epsilon:
            return False
        pooler = getattr(model, "pooler", None)
        return pooler is None or pooler.activation is get_activation(self.pooler_activation)

    def options(self, model):
        return {
            **read_options(model, self.paths),
            "activation": activation_name(read_part(model, f"{FIRST}.feed_forward.activation")),
            **head_options(model, "DistilBert"),
        }

    def build(self, config, model):
        return build_alike(models.bert(**self.arguments(config)), model, self.pooler_activation)


class _PositionsWithSegment:
    """The table of positions; the vector of the model's only segment is added when it is stored."""

    def __init__(self, model):
        self.table, self.segment = model.position.table, model.segment.table
        self.shape = tuple(self.table.shape)

    def assign(self, tensor):
        self.table.assign(tensor)
        self.segment.assign(np.zeros(self.segment.shape))

    def tensor(self):
        return numbers(self.table) + numbers(self.segment)
