"""Heads of encoders: what a folder holds, and one base class for families of encoders of texts.

`architectures` in `config.json` decides what a folder holds; the names of its tensors do where it
names no class that is known.
"""

import keras
import numpy as np

from keras_attn import layers, models, positions, registry
from keras_attn.compat.unallocated import without_values
from keras_attn.convert.hugging_face.config import Config
from keras_attn.convert.hugging_face.family import Family, build
from keras_attn.convert.hugging_face.weights import Fold, copy, copy_blocks, copy_part, copy_table
from keras_attn.ops.activations import get_activation

# What a model predicts.
TOKENS, CLASSES, TAGS, ANSWERS = "tokens", "classes", "tags", "answers"
FEATURES = "features"
REPLACED = "replaced tokens"  # a logit for each token, of ELECTRA
# Ends of the names of classes of transformers; "Model" is the end of some others, too.
HEADS = {
    "ForMaskedLM": TOKENS,
    "ForPreTraining": TOKENS,
    "ForCausalLM": TOKENS,
    "ForConditionalGeneration": TOKENS,
    "LMHeadModel": TOKENS,
    "MTModel": TOKENS,
    "ForSequenceClassification": CLASSES,
    "ForImageClassification": CLASSES,
    "ForTokenClassification": TAGS,
    "ForQuestionAnswering": ANSWERS,
    "Model": FEATURES,
}
# Classes whose tensors may have the names of those above.
_OTHER_HEADS = ("ForMultipleChoice", "ForNextSentencePrediction")
MULTI_LABEL = "multi_label_classification"
# By the activation a of a pooler: a small s and 1 / (s a'(0)), so that a(s h) / (s a'(0)) is h.
_IDENTITY_SCALES = {"tanh": (2.0**-14, 2.0**14), "gelu": (2.0**-24, 2.0**25)}


def named_head(config):
    """Return the head of the class in `architectures`; None if it names none that is known."""
    for name in config.strings("architectures") or []:
        if name.endswith(_OTHER_HEADS):
            config.refuse(
                f"A {name} is not converted, only a model that predicts tokens, classes, tags or "
                "answers, or gives features."
            )
        for ending, head in HEADS.items():
            if name.endswith(ending):
                return head
    return None


def require_tokens(config, name, others=()):
    """Refuse a folder whose class is known and has another head than that for tokens, or others."""
    head = named_head(config)
    if head not in (None, TOKENS, *others):
        config.refuse(f"A {name} with {head} is not converted, only one that predicts tokens.")


def head_of(model):
    """Return the head that a model has, one of the names above."""
    if isinstance(model, models.Classifier):
        return FEATURES if model.num_classes is None else CLASSES
    head = getattr(model, "head", None)
    head = head.head if isinstance(head, layers.TransformedHead) else head
    if isinstance(head, layers.AnswerHead):
        return ANSWERS
    is_tagger = isinstance(model, models.MaskedLanguageModel)
    return TAGS if is_tagger and isinstance(head, keras.layers.Dense) else TOKENS


def read_head(checkpoint, name, head_names, unnamed):
    """Return the head of a checkpoint; refuse one that its family lacks.

    A class with a head for tokens may be named where the file has none, as in many folders of
    sentence encoders.

    Where no class is named, the first head whose tensors are there is that of the checkpoint, and
    one whose tensors another head has as well is refused.

    Args:
        checkpoint: a `Checkpoint`.
        name: str. Beginning of the names of the family's classes.
        head_names: dict by head of the names of its parts, in the order in which they are tried.
        unnamed: the head of a checkpoint that has none of the parts.
    """
    known = [head for head in head_names if head != FEATURES]
    head = named_head(checkpoint.config)
    is_absent = head == TOKENS and TOKENS in known and not has_names(checkpoint, head_names[head])
    if head is None or is_absent:
        head = next((x for x in known if has_names(checkpoint, head_names[x])), unnamed)
        tensors = {*head_names.get(head, {}).values()}
        alike = [x for x in known if {*head_names[x].values()} == tensors]
        if len(alike) > 1:
            checkpoint.refuse(
                f"The tensors are those of a {name} with {' or with '.join(alike)}: name the class "
                "of transformers in `architectures` of config.json."
            )
    if head not in (unnamed, FEATURES, *known):
        heads = ", ".join(dict.fromkeys([unnamed, *known, FEATURES]))
        checkpoint.refuse(f"A {name} with {head} is not converted, only one with {heads}.")
    return head


def has_names(checkpoint, names):
    """Return True if a checkpoint has the last layer of a head, and its pooler."""
    wanted = [last_layer(names), *_poolers(names)] if names else []
    is_there = [checkpoint.has(x) or checkpoint.has(f"{x}.weight") for x in wanted]
    return bool(names) and all(is_there)


def last_layer(names):
    """Return the name of a head's last layer: the last entry of its dict in `head_names`."""
    return [*names.values()][-1]


def has_several_labels(config):
    """Return True if an input may have several labels at once."""
    return config.get("problem_type") == MULTI_LABEL


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
                checkpoint.replace(original, name)  # which no class reads then
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
        if _poolers(names) and (head != FEATURES or has_names(checkpoint, names)):
            pooler = self.build_pooler(head, config)
        features = _poolers(self.head_names.get(FEATURES, {}))
        for name in features:
            if pooler is None or name not in names.values():
                checkpoint.ignore(f"{name}.*")
        multi_label = head == CLASSES and has_several_labels(config)
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
        if head == CLASSES and pooler is None and _poolers(names):
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
            for name in _poolers(self.head_names.get(FEATURES, {})):
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


def _poolers(names):
    """Return the names of the layers between the encoder and a head."""
    return [name for path, name in names.items() if path.startswith(("pooler", "head.transform"))]


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


def parts_of(model):
    """Return the parts of a model but its head, as arguments of a model with another head."""
    names = "embedding", "position", "segment", "norm", "dropout", "name"
    encoder = model.depth if isinstance(model, models.CausalLanguageModel) else model.encoder
    return {**{name: getattr(model, name, None) for name in names}, "encoder": encoder}


def with_head(model, head, size=None, pooling="first", pooler=None, multi_label=False):
    """Return a model of the parts of another model, with another head.

    Args:
        model: a `MaskedLanguageModel`, a `CausalLanguageModel` or a `Classifier`.
        head: one of the names above.
        size: int. Number of classes or tags.
        pooling, pooler, multi_label: as `Classifier`; before other heads, the pooler is applied to
            each token.
    """
    if head == TOKENS:
        return model
    is_causal, parts = isinstance(model, models.CausalLanguageModel), parts_of(model)
    if head in (ANSWERS, TAGS, REPLACED):
        zeros = {"kernel_initializer": "zeros", "dtype": "float32"}
        layer = layers.AnswerHead() if head == ANSWERS else keras.layers.Dense(size, **zeros)
        layer = layer if pooler is None else layers.TransformedHead(pooler, layer)
        layer.name = "head"
        return models.MaskedLanguageModel(**parts, head=layer)
    return models.Classifier(
        **parts,
        image_shape=getattr(model, "image_shape", None),
        num_classes=size,
        pooling=pooling,
        pooler=pooler,
        use_bias=not (is_causal and head == CLASSES),
        multi_label=multi_label,
    )


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


def head_options(model, name):
    """Return the options that say which head a model has; `name` is that of a family's classes."""
    head = head_of(model)
    endings = {
        TOKENS: "ForMaskedLM",
        CLASSES: "ForSequenceClassification",
        TAGS: "ForTokenClassification",
        ANSWERS: "ForQuestionAnswering",
        FEATURES: "Model",
    }
    options = {"architectures": [f"{name}{endings[head]}"]}
    if head == TAGS:
        return {**options, **label_options(_default_labels(model.head.units))}
    return {**options, **class_options(model)} if head == CLASSES else options


def class_options(model):
    """Return the options of the classes of a `Classifier`: their names, and what they are."""
    options = label_options(_default_labels(model.num_classes))
    if model.multi_label:
        return {**options, "problem_type": MULTI_LABEL}
    return {**options, "problem_type": "regression"} if model.num_classes == 1 else options


def label_options(labels):
    """Return the options for the names of the classes, or of the tags."""
    return {
        "id2label": {str(index): name for index, name in enumerate(labels)},
        "label2id": {name: index for index, name in enumerate(labels)},
    }


def _default_labels(size):
    return [f"LABEL_{index}" for index in range(size)]


def read_labels(folder):
    """Read the names of the classes or tags of a checkpoint of Hugging Face.

    They are the `labels` of `export.saved_model` and of `to_hugging_face`. Files without names of
    their own have "LABEL_0", "LABEL_1" and so on.

    Args:
        folder: path of a folder that `save_pretrained` wrote, or a copy of one from the Hub.

    Returns:
        A list of strings in the order of the logits, or None if `config.json` lacks one of them.

    Raises:
        ValueError: if `config.json` is missing or damaged.

    Example:
        >>> import json, pathlib, tempfile
        >>> from keras_attn import convert
        >>> folder = tempfile.mkdtemp()
        >>> options = {"model_type": "bert", "id2label": {"0": "no", "1": "yes"}}
        >>> _ = pathlib.Path(folder, "config.json").write_text(json.dumps(options))
        >>> convert.read_labels(folder)
        ['no', 'yes']

    Differs from the paper: none.

    Reference: [Wolf et al., 2020](https://arxiv.org/abs/1910.03771).
    """
    names = Config(folder).options("id2label") or {}
    labels = [names.get(str(index)) for index in range(len(names))]
    return labels if labels and all(isinstance(label, str) for label in labels) else None
