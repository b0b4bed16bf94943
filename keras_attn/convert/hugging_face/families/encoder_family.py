"""Encoders of texts with any head: how their models are read, built and written."""

import keras
import numpy as np

from keras_attn import layers, models, positions, registry
from keras_attn.compat.unallocated import without_values
from keras_attn.convert.hugging_face.families.family import Family, build
from keras_attn.convert.hugging_face.heads import (
    CLASSES,
    FEATURES,
    REPLACED,
    TAGS,
    TOKENS,
    has_names,
    has_several_labels,
    head_of,
    head_options,
    last_layer,
    parts_of,
    poolers,
    read_head,
    with_head,
)
from keras_attn.convert.hugging_face.weights import Fold, copy, copy_blocks, copy_part, copy_table
from keras_attn.ops.activations import get_activation

# By the activation a of a pooler: a small s and 1 / (s a'(0)), so that a(s h) / (s a'(0)) is h.
_IDENTITY_SCALES = {"tanh": (2.0**-14, 2.0**14), "gelu": (2.0**-24, 2.0**25)}


class EncoderFamily(Family):
    """A family of encoders of texts with any head: its names, and how its model is built.

    A family defines `arguments`, `build_masked` and `language_options`, and these attributes.

    Attributes:
        name: str. Beginning of the names of the classes of transformers.
        head_names: dict by head of the names of its parts by their paths in the model. A head that
            is absent is refused. The last part is the `last_layer`, by which a head is found where
            no class is named, and whose rows are the classes or tags. The path "pooler" is that
            of a dense layer at the first token, "head.transform" that of one at each token.
        embeddings, block: names of the parts of the embeddings and of a block.
        block_prefix: str. Beginning of a block's names, with a field `{}` for its index.
        position_table: name of the table of positions.
        copies: dict of names of tensors that are copies of others, or absent, and those others. A
            copy of the token table may differ from it: the head then has a table of its own.
        unread: tuple of patterns of tensors for tasks of the pretraining that nothing reads.
        stores_pooler: heads beside which the class of transformers has the pooler of features too.
        poolings: the poolings of classes that the family has.
    """

    model_classes = models.MaskedLanguageModel, models.Classifier
    name = None
    head_names = {}
    embeddings, block, block_prefix = {}, {}, "encoder.layer.{}."
    position_table = "embeddings.position_embeddings"
    copies = {}
    unread = ()
    stores_pooler = (FEATURES,)
    poolings = ("first",)

    def arguments(self, config):
        """Return the arguments of the function that builds a model, for a configuration."""
        raise NotImplementedError

    def language_options(self, model):
        """Return the options of `config.json` for a model, but those of its head."""
        raise NotImplementedError

    def build_masked(self, arguments, overrides, head):
        """Return the `MaskedLanguageModel` of which a model with any head is made."""
        return build(models.bert, arguments, overrides)

    def build_pooler(self, head, config):
        """Return the layer between the encoder and classes or other heads, or the features."""
        return keras.layers.Dense(self.arguments(config)["hidden_dim"], "tanh", name="pooler")

    @property
    def logits(self):
        """Name of the layer of logits that is, unless untied, a copy of the token table."""
        table = f"{self.embeddings['embedding']}.weight"
        names = (name for name, original in self.copies.items() if original == table)
        return next(names, "").removesuffix(".weight")

    def first_position(self, config):
        """Return the row of the first position in the table of positions."""
        return 0

    def pooling_of_classes(self, config):
        """Return the pooling of a classifier."""
        return "first"

    def head_of(self, model):
        """Return the head that a model has."""
        return head_of(model)

    def convert(self, checkpoint, overrides):
        """Return a `MaskedLanguageModel` or a `Classifier` with the weights of a checkpoint."""
        config = checkpoint.config
        checkpoint.strip(self.prefix)
        head = self.read_head(checkpoint)
        masked = self.build_masked(self.arguments(config), overrides, head)
        has_own_table = head == TOKENS and not config.flag("tie_word_embeddings", True)
        for name, original in self.copies.items():
            is_table = name == f"{self.logits}.weight"
            if is_table and (has_own_table or not checkpoint.drop_if_equal(name, original)):
                masked = untied(masked)
            elif name == f"{self.logits}.bias" and is_untied(masked):
                checkpoint.rename(name, original)  # which no class reads then
            else:
                checkpoint.drop_copy(name, original)
        if isinstance(masked.position, positions.Learned):
            first, length = self.first_position(config), masked.position.max_length
            trained = config.size("max_position_embeddings") - first
            lengths = {"max_length": length}
            checkpoint.repeat_positions(f"{self.position_table}.weight", trained, lengths, first)
        model = self.add_head(checkpoint, masked, head)
        self.copy_weights(checkpoint, model)
        return model

    def read_head(self, checkpoint):
        """Return the head of a checkpoint, without the tensors of the pretraining's other tasks."""
        head = read_head(checkpoint, self.name, self.head_names, FEATURES)
        if head == TOKENS:
            checkpoint.ignore(*self.unread)
        return head

    def add_head(self, checkpoint, masked, head):
        """Return a model of the parts of a `MaskedLanguageModel`, with the head of a checkpoint."""
        config, names = checkpoint.config, self.head_names.get(head, {})
        pooler, size = None, None
        if head in (CLASSES, TAGS, REPLACED):
            size = checkpoint.shape(f"{last_layer(names)}.weight")[0]
        pooling = self.pooling_of_classes(config) if head == CLASSES else "first"
        if poolers(names) and (head != FEATURES or has_names(checkpoint, names)):
            pooler = self.build_pooler(head, config)
        features = poolers(self.head_names.get(FEATURES, {}))
        for name in features:
            if pooler is None or name not in names.values():
                checkpoint.ignore(f"{name}.*")
        multi_label = has_several_labels(config, head)
        return with_head(masked, head, size, pooling, pooler, multi_label)

    def copy_weights(self, checkpoint, model):
        self.copy_embeddings(checkpoint, model)
        self.copy_blocks(checkpoint, model)
        self.copy_head(checkpoint, model)

    def copy_embeddings(self, checkpoint, model):
        """Copy the tables and the norm of the embeddings, in either direction."""
        copy_table(checkpoint, model, self.embeddings)

    def copy_blocks(self, checkpoint, model):
        """Copy the tensors of all blocks, in either direction."""
        copy_blocks(checkpoint, model.encoder.blocks, self.block, self.block_prefix)

    def copy_head(self, checkpoint, model):
        """Copy the tensors of the head, in either direction."""
        head, pooler = self.head_of(model), getattr(model, "pooler", None)
        names = self.head_names.get(head, {})
        is_bare = head == FEATURES and pooler is None
        if head == CLASSES and pooler is None and poolers(names):
            _store_first_token(checkpoint, model, names, self.build_pooler(head, checkpoint.config))
        elif not is_bare:
            copy_table(checkpoint, model, names)
        if is_untied(model):
            copy_part(checkpoint, model, "head.embedding", self.logits)
            if f"{self.logits}.bias" in self.copies:
                bias = model.head.bias
                checkpoint.transfer_copy(f"{self.logits}.bias", Fold([bias], tuple(bias.shape)))
        if head in self.stores_pooler:
            copied = () if is_bare else names.values()
            for name in poolers(self.head_names.get(FEATURES, {})):
                if name not in copied:  # a pooler of the class that no output reads
                    width = self.arguments(checkpoint.config)["hidden_dim"]
                    checkpoint.transfer_constant(f"{name}.weight", (width, width))
                    checkpoint.transfer_constant(f"{name}.bias", (width,))

    def options(self, model):
        tying = {"tie_word_embeddings": False} if is_untied(model) else {}
        return {**self.language_options(model), **head_options(model, self.name), **tying}

    def build(self, config, model):
        return self.build_alike(config, model, {})

    def build_alike(self, config, model, overrides):
        """Return a model of the family with the head that `model` has."""
        head = self.head_of(model)
        masked = self.build_masked(self.arguments(config), overrides, head)
        masked = untied(masked) if is_untied(model) else masked
        has_pooler = getattr(model, "pooler", None) is not None
        has_pooler |= isinstance(model.head, layers.TransformedHead)
        pooler = self.build_pooler(head, config) if has_pooler else None
        pooling = getattr(model, "pooling", None)
        is_free = pooling in self.poolings or (head == FEATURES and not has_pooler)
        size = model.head.units if head in (CLASSES, TAGS, REPLACED) else None
        multi_label = getattr(model, "multi_label", False)
        return with_head(masked, head, size, pooling if is_free else "first", pooler, multi_label)


def is_untied(model):
    """Return True for a head for masked tokens with a token table of its own."""
    head = getattr(model, "head", None)
    return isinstance(head, layers.MaskedTokenHead) and head.embedding is not model.embedding


def untied(masked):
    """Return a `MaskedLanguageModel` of the same parts whose head has a token table of its own."""
    head, table = masked.head, masked.embedding
    with without_values():
        own = layers.MaskedTokenHead(
            layers.TokenEmbedding(table.vocabulary_size, table.hidden_dim, False, None),
            head.activation,
            registry.copy(head.norm),
            use_bias=head.use_bias,
            name=head.name,
        )
        return models.MaskedLanguageModel(**parts_of(masked), head=own)


def _store_first_token(checkpoint, model, names, pooler):
    """Store a classifier of the bare first token, with a pooler whose output is proportional to it.

    Near 0 the activation a of a pooler is linear: for a small factor s, a(s x) / a'(0) = s x.
    """
    kind = next((k for k in _IDENTITY_SCALES if get_activation(k) is pooler.activation), None)
    if kind is None:
        raise ValueError(
            "A classifier without a pooler needs a family whose pooler has the activation tanh or "
            f"gelu. Received: {pooler.activation!r} of {checkpoint.config.get('model_type')}."
        )
    inner, outer = _IDENTITY_SCALES[kind]
    width = pooler.units
    checkpoint.transfer(f"{names['pooler']}.weight", _Constant(inner * np.eye(width)))
    checkpoint.transfer(f"{names['pooler']}.bias", _Constant(np.zeros(width)))
    kernel = model.head.kernel
    fold = Fold([kernel], kernel.shape[::-1], (1, 0), scales=(1 / outer,))
    checkpoint.transfer(f"{names['head']}.weight", fold)
    copy(checkpoint, model.head.bias, f"{names['head']}.bias")


class _Constant:
    """A tensor to write for which a model has no variable."""

    def __init__(self, value):
        self._value, self.shape = value.astype("float32"), value.shape

    def tensor(self):
        return self._value
