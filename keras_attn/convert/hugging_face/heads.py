"""Heads: the one that a folder holds, the one that a model has, and its options.

`architectures` in `config.json` decides what a folder holds; the names of its tensors do where it
names no class that is known.
"""

import keras

from keras_attn import layers, models
from keras_attn.convert.hugging_face.config import Config
from keras_attn.models.assembly import check_causal

# What a model predicts.
TOKENS, CLASSES, TAGS, ANSWERS = "tokens", "classes", "tags", "answers"
FEATURES = "features"
REPLACED = "replaced tokens"  # a logit for each token, of ELECTRA
# Ends of the names of classes of transformers; "Model" is the end of some others, too.
_HEADS = {
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


def named_head(config):
    """Return the head of the class in `architectures`; None if it names none that is known."""
    for name in config.strings("architectures") or []:
        if name.endswith(_OTHER_HEADS):
            config.refuse(
                f"A {name} is not converted, only a model that predicts tokens, classes, tags or "
                "answers, or gives features."
            )
        for ending, head in _HEADS.items():
            if name.endswith(ending):
                return head
    return None


def require_tokens(config, name):
    """Refuse a folder whose class is known and has another head than that for tokens."""
    head = named_head(config)
    if head not in (None, TOKENS):
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
    wanted = [last_layer(names), *poolers(names)] if names else []
    is_there = [checkpoint.has(x) or checkpoint.has(f"{x}.weight") for x in wanted]
    return bool(names) and all(is_there)


def last_layer(names):
    """Return the name of a head's last layer: the last entry of its dict in `head_names`."""
    return [*names.values()][-1]


def has_several_labels(config, head):
    """Return True for a head of classes of which an input may have several at once."""
    return head == CLASSES and config.get("problem_type") == MULTI_LABEL


def poolers(names):
    """Return the names of the layers between the encoder and a head."""
    return [name for path, name in names.items() if path.startswith(("pooler", "head.transform"))]


def is_causal(encoder):
    """Return True if no position of an encoder depends on a later one, as in a decoder."""
    try:
        check_causal(encoder)
    except ValueError:
        return False
    return True


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
    is_decoder, parts = isinstance(model, models.CausalLanguageModel), parts_of(model)
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
        use_bias=not (is_decoder and head == CLASSES),
        multi_label=multi_label,
    )


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
