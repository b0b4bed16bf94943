"""The base of the tasks: labels as targets of a model, its loss and its results."""

import numpy as np

from keras_attn import losses, models

from ..predict import compiled
from .encoded_texts import EncodedTexts, TextBatches, encode


class Task:
    """A task on texts.

    A subclass defines `model_of(start)`, `targets(examples)`, `compile_arguments()` and
    `evaluate(model, batches, examples)`, whose results are a dict with a `value` of the `metric`.

    Args:
        splits: dict of `Examples`.
        options: the recipe's.

    Attributes:
        kinds: classes of models that a run may begin with.
        metric: name of the result.
        curve: name of the metric of `history.csv` that is drawn.
        reads_padding: True if the model must know an id of padding.
        has_token_targets: False if the second axis of targets is not that of the tokens.
        num_unread: number of tokens at the end of a text that a model is not given.
    """

    kinds = (models.MaskedLanguageModel, models.Classifier)
    metric = curve = None
    reads_padding = False
    has_token_targets = True
    num_unread = 0

    def __init__(self, splits, options):
        self.options = options

    def new_model(self, vocabulary_size, **arguments):
        """Return a new model to begin with."""
        return models.bert(vocabulary_size, **arguments)

    def texts(self, examples):
        """Return the texts on which a new model's tokenizer is trained."""
        return examples.texts

    def rows(self, model, tokenizer, examples, is_training=False):
        """Return `EncodedTexts` of texts."""
        inputs, lengths = encode(tokenizer, examples, model, self.options.max_length)
        targets = self.targets(examples)
        weights = self.weights(targets) if is_training else np.ones(len(targets))
        return EncodedTexts(inputs, lengths, targets, weights.astype("float32"))

    def weights(self, targets):
        """Return a weight of each training row."""
        return np.ones(len(targets))

    def batches(self, rows, seed=None):
        """Return batches of `EncodedTexts`, shuffled by a seed, or in their order without one."""
        return TextBatches(rows, self.options.batch_size, seed, self.has_token_targets)

    def finish(self, model):
        """Change the weights after the training, if the outputs should then differ."""

    def labels(self):
        """Return the entries of `labels.json`."""
        return {}

    def export_arguments(self, tokenizer):
        """Return arguments of `export.saved_model`."""
        return {"tokenizer": tokenizer, "max_source_length": self.options.max_length}


class TextTask(Task):
    """A task with one output for a text."""

    kinds = (*Task.kinds, models.CausalLanguageModel)
    reads_padding = True


def classifier_of(model, num_classes, pooling=None, use_bias=None, multi_label=False):
    """Return a `Classifier` that shares the parts of a model and has a new head.

    Args:
        model: a `MaskedLanguageModel`, a `CausalLanguageModel` or a `Classifier`.
        num_classes: int.
        pooling: as `Classifier`; None for that of a `Classifier`, "last" for a causal model, or
            "mean".
        use_bias: bool. None for that of a `Classifier`, or no bias for a causal model, as
            `convert.to_hugging_face` writes it.
        multi_label: as `Classifier`.
    """
    is_causal = isinstance(model, models.CausalLanguageModel)
    if is_causal and pooling == "first":
        raise ValueError(
            "--pooling must be last or mean for a causal model, whose first token sees no other. "
            "Received: --pooling first."
        )
    if use_bias is None:
        use_bias = getattr(model, "use_bias", not is_causal)
    return models.Classifier(
        embedding=model.embedding,
        encoder=model.depth if is_causal else model.encoder,
        num_classes=num_classes,
        position=model.position,
        pooling=pooling or getattr(model, "pooling", "last" if is_causal else "mean"),
        dropout=model.dropout,
        segment=getattr(model, "segment", None),
        norm=getattr(model, "norm", None),
        pooler=getattr(model, "pooler", None),
        use_bias=use_bias,
        multi_label=multi_label,
        name=model.name,
    )


def token_loss(ignored, label_smoothing=0.0, axis=-1):
    """Return the loss of tokens but those of the class `ignored` and those in rows of weight 0.

    Devices add such rows, whose labels are 0, to a batch that they do not divide.
    """
    reduction = "mean_with_sample_weight"
    return losses.LabelSmoothedCrossentropy(label_smoothing, ignored, reduction, axis=axis)


def outputs_of(model, batches):
    """Return a list of the outputs of a model for each batch, with the targets."""
    predict, pairs = compiled(model), []
    for index in range(len(batches)):
        inputs, targets, _ = batches.batch(0, index)
        pairs.append((np.asarray(predict(inputs)), targets))
    return pairs
