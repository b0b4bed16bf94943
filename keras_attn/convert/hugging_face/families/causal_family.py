"""Causal decoders, which predict tokens, classify by the last token, or have another head."""

from keras_attn import models
from keras_attn.convert.hugging_face.families.family import Family
from keras_attn.convert.hugging_face.heads import (
    ANSWERS,
    CLASSES,
    FEATURES,
    TAGS,
    TOKENS,
    has_several_labels,
    head_of,
    head_options,
    read_head,
    with_head,
)
from keras_attn.convert.hugging_face.weights import copy_table

FIRST = "depth.blocks.0"
CLASSIFIER = "score"


class CausalFamily(Family):
    """Causal decoders, which predict tokens, classify by the last token, or have another head.

    A family defines how a `CausalLanguageModel` is read and written. A model with another head is
    made of the same parts.

    Attributes:
        name: str. Beginning of the names of the classes of transformers.
        classifier_name: str. As `name`, of the classes with other heads; by default `name`.
        head_names: dict by head, but that for tokens, of the names of its parts by their paths.
        answers_prefix: str. In place of `prefix` in the class with answers; None for `prefix`.
        default_pad_id: the id of padding where `config.json` has none; None for none.
    """

    model_classes = (models.CausalLanguageModel,)
    name = None
    classifier_name = None
    head_names = {
        CLASSES: {"head": CLASSIFIER},
        TAGS: {"head": CLASSIFIER},
        ANSWERS: {"head": "qa_outputs"},
    }
    answers_prefix = None
    default_pad_id = None
    free = ("pad_id",)  # padding is at the end, where no token sees it

    def convert_language_model(self, checkpoint, overrides):
        """Return a `CausalLanguageModel` with the weights of a checkpoint, without the prefix."""
        raise NotImplementedError

    def language_options(self, model):
        """Return the options of `config.json` for a `CausalLanguageModel`."""
        raise NotImplementedError

    def build_language_model(self, config, model):
        """Return a `CausalLanguageModel` of the family, for `build`."""
        raise NotImplementedError

    def copy_language_model(self, checkpoint, model):
        """Copy the tensors of a `CausalLanguageModel`, in either direction."""
        raise NotImplementedError

    def convert(self, checkpoint, overrides):
        """Return the model of a checkpoint.

        Features are those of the last token, as a classifier reads them.
        """
        config, head = checkpoint.config, self.read_head(checkpoint)
        checkpoint.strip((head == ANSWERS and self.answers_prefix) or self.prefix)
        if head in (CLASSES, FEATURES):
            pad_id = config.optional(config.index, "pad_token_id", self.default_pad_id)
            overrides = {"pad_id": pad_id, **overrides}
        names, size = self.head_names.get(head, {}), None
        if head in (CLASSES, TAGS):
            size = checkpoint.shape(f"{names['head']}.weight")[0]
        model = self.convert_language_model(checkpoint, overrides)
        multi_label = has_several_labels(config, head)
        model = with_head(model, head, size, "last", multi_label=multi_label)
        copy_table(checkpoint, model, names)
        return model

    def read_head(self, checkpoint):
        """Return the head of a checkpoint; refuse one that the family lacks."""
        return read_head(checkpoint, self.name, self.head_names, TOKENS)

    def options(self, model):
        head = head_of(model)
        if head not in (TOKENS, FEATURES, *self.head_names):
            raise ValueError(
                f"`model` fits no family of checkpoints: a {self.name} has no class with {head}. "
                f"Received: model={model!r}."
            )
        options = self.language_options(language_model(model))
        if head == TOKENS:
            return options
        options.pop("tie_word_embeddings", None)  # there is no second table
        return {**options, **head_options(model, self.classifier_name or self.name)}

    def build(self, config, model):
        reference = self.build_language_model(config, language_model(model))
        size = model.head.units if (head := head_of(model)) in (CLASSES, TAGS) else None
        return with_head(
            reference, head, size, "last", multi_label=getattr(model, "multi_label", False)
        )

    def copy_weights(self, checkpoint, model):
        self.copy_language_model(checkpoint, language_model(model))
        copy_table(checkpoint, model, self.head_names.get(head_of(model), {}))

    def prefix_of(self, model):
        is_other = self.answers_prefix is not None and head_of(model) == ANSWERS
        return self.answers_prefix if is_other else super().prefix_of(model)


def language_model(model):
    """Return the `CausalLanguageModel` of a model's parts, tied; one that is one as it is."""
    if isinstance(model, models.CausalLanguageModel):
        return model
    return models.CausalLanguageModel(
        embedding=model.embedding,
        depth=model.encoder,
        position=model.position,
        dropout=model.dropout,
        name=model.name,
    )
