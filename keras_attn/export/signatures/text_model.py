"""Signatures of a Keras model of one's own that reads token ids, with or without a tokenizer."""

import keras
import numpy as np
import tensorflow as tf

from keras_attn.export.checks import check_labels
from keras_attn.export.signatures.encoders import WordIds, name_classes, pair_method
from keras_attn.export.signatures.model_functions import (
    ModelFunctions,
    ids_method,
    length_mask,
    text_method,
)
from keras_attn.export.signatures.model_reader import (
    ModelReader,
    describe_output,
    is_functional,
    named_outputs,
    reads_series,
)
from keras_attn.models.model import LENGTH, Model
from keras_attn.ops.checks import check_sizes, check_that

KINDS = ("classify", "regress", "embed", "tag")
# For each rank of an output, its kinds; the first is that of an output without labels.
_KINDS_BY_RANK = {
    1: ("regress", "classify"),
    2: ("regress", "classify", "embed"),
    3: ("tag",),
}


class TextModel(ModelFunctions):
    """Keras model of one's own as graph functions, from text, or from ids, to what it computes.

        text -> ids -> softmax(logits) -> label,   or a value, features, or labelled words

    The model may be functional or subclassed, of layers of this package or of any other. What it
    returns decides about the kind of each output:

        (B, K) with labels or a softmax: "classify"      (B, K) otherwise: "embed"
        (B,) or (B, 1) without labels: "regress"         (B, T, K) with labels: "tag"

    With two `labels` an output of one number is the probability of the second, or its logit.
    Several numbers of a sigmoid are several answers at once: "embed", unless `kind` is given. A
    model of several outputs has all of them under their names: `topic_label`, `stars_value`. If one
    of them is "tag", the text is read word by word for all. A text without tokens has no label, and
    zeros in the place of numbers.

    The model is called as for inference. It must give a text the same outputs with padding and
    without, or read rows of a fixed number of ids, to which all texts are then cut or padded.

    Args:
        model: a `keras.Model` that was called before, and reads ids (B, T).
        tokenizer: from `keras_attn.text`; None for a model of ids without `text` and `pair`.
        labels: list of the names of the classes; of several outputs a dict of lists by output. By
            default their numbers.
        max_length: int. Most tokens of a text to read; a longer one loses its end.
        kind: "classify", "regress", "embed" or "tag", in place of what the outputs say; of several
            outputs a dict by output. Logits without labels look like features.
        inputs: dict of the model's inputs, from "token_ids", "segment_ids", "padding_mask",
            "lengths" or "position_ids" to the name of one. By default common names decide, then
            the shapes of ids and of a mask of bools.
        from_logits: bool. If False, classes get probabilities from the model, if True logits. None
            looks for a softmax or sigmoid at the end; a subclassed model is asked for an example.

    Raises:
        ValueError: if an input is unknown, an argument does not fit the outputs, padding changes
            them, the tokenizer has ids that the model lacks, or the model was never called.

    Example:
        >>> import keras, keras_attn
        >>> ids = keras.Input((None,), dtype="int32")
        >>> x = keras.layers.Embedding(7, 5, mask_zero=True)(ids)
        >>> x = keras.layers.GlobalAveragePooling1D()(x)
        >>> model = keras.Model(ids, keras.layers.Dense(2, kernel_initializer="zeros")(x))
        >>> tokenizer = keras_attn.text.Characters("abc")
        >>> classifier = keras_attn.export.TextModel(model, tokenizer, ["no", "yes"])
        >>> classifier.text(["a", "cab"])["label"].numpy().tolist()
        [b'no', b'no']

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), sections 4.1 and 5.3.
    """

    has_labels = True

    @classmethod
    def fits(cls, model, options):
        decodes = hasattr(model, "reads_prompt")  # with `start` and `step`, as `generate` takes it
        is_own = isinstance(model, keras.Model) and not isinstance(model, Model)
        return is_own and not decodes and not reads_series(model)

    @classmethod
    def from_options(cls, model, options):
        options.check_no_strategy()
        check_sizes(least=LENGTH, max_source_length=options.max_source_length)
        check_that(not options.stream, "False for a model of your own", stream=True)
        return cls(
            model,
            options.tokenizer,
            options.labels,
            options.max_source_length,
            options.kind,
            options.inputs,
            options.from_logits,
        )

    def __init__(
        self,
        model,
        tokenizer=None,
        labels=None,
        max_length=1024,
        kind=None,
        inputs=None,
        from_logits=None,
    ):
        super().__init__(model)
        check_sizes(least=LENGTH, max_length=max_length)
        self._reader = reader = ModelReader(model, inputs, tokenizer, max_length)
        self.tokenizer, self._vocabulary_size = tokenizer, reader.vocabulary_size
        self.max_length = reader.max_length
        examples = reader.examples
        options = {"labels": labels, "kind": kind, "from_logits": from_logits}
        options = {key: _by_output(examples, **{key: value}) for key, value in options.items()}
        self._outputs = [
            ModelOutput(
                model, name, example, **{key: values[name] for key, values in options.items()}
            )
            for name, example in examples.items()
        ]
        with reader.errors_of_call(1, self.max_length):
            self.ids(tf.ones((1, self.max_length), tf.int32), tf.constant([self.max_length]))

    @property
    def kind(self):
        """The kind of the only output, or "predict" of several."""
        return self._outputs[0].kind if len(self._outputs) == 1 else "predict"

    @property
    def signatures(self):
        """The functions by name: of a text, which is the default, of a pair, and of ids."""
        if self.tokenizer is None:
            return {self.kind: self.ids, "serving_default": self.ids}
        signatures = {self.kind: self.text}
        if "segment_ids" in self._reader.roles and not self._has_tags:
            signatures[f"{self.kind}_pair"] = self.pair
        return {**signatures, "ids": self.ids, "serving_default": self.text}

    @property
    def _has_tags(self):
        return any(output.kind == "tag" for output in self._outputs)

    @text_method
    def text(self, text):
        """Map strings [B] to the outputs of the kinds, as `TextClassifier` and `TextTagger` do."""
        if not self._has_tags:
            return self._outputs_of_text(*self.tokenizer.encode(text, self.max_length))
        words = WordIds(text, self.tokenizer, self.max_length)
        return {
            "words": words.words,
            **self._outputs_of_text(words.ids, words.lengths, words=words),
        }

    @pair_method
    def pair(self, text, second_text):
        """Map pairs, two strings [B], to the outputs of `text`."""
        return self._outputs_of_text(
            *self.tokenizer.encode_pair(text, second_text, self.max_length)
        )

    @ids_method()
    def ids(self, token_ids, lengths):
        """Map ids [B, T] with `lengths` [B] to the outputs, with the numbers of the classes.

        For tags `probabilities` are [B, T, K] and `class` is [B, T]. Ids beyond a row's length are
        padding.
        """
        token_ids = self.read_ids(token_ids, lengths, self._reader.pad_id, self.max_length)
        outputs = self._predict(token_ids, lengths)
        return _with_output_names(
            (output.name, output.by_name(outputs[output.name])) for output in self._outputs
        )

    def _outputs_of_text(self, token_ids, lengths, segment_ids=None, words=None):
        """Return the outputs of a text, with the names of classes."""
        outputs = self._predict(token_ids, lengths, segment_ids)
        parts = []
        for output in self._outputs:
            part = output.by_name(outputs[output.name])
            if output.kind == "tag":
                part = words.tag(part["probabilities"], output.labels)
            elif output.kind == "classify":
                part = name_classes(part, output.labels)
                part["label"] = tf.where(lengths > 0, part["label"], "")
            parts.append((output.name, part))
        return _with_output_names(parts)

    def _predict(self, token_ids, lengths, segment_ids=None):
        """Return values, features or probabilities by output, 0 where there is no token."""
        outputs = self._reader.predict(token_ids, lengths, segment_ids)
        is_token = length_mask(token_ids, lengths)
        return {
            output.name: output.probabilities_or_values(outputs[output.name], is_token)
            for output in self._outputs
        }


def _with_output_names(parts):
    """Return one dict of the outputs of a model, which have their names in front."""
    return {
        key if name is None else f"{name}_{key}": x
        for name, part in parts
        for key, x in part.items()
    }


def _by_output(names, **argument):
    """Return an argument for each output, a dict; those of several outputs are a dict already."""
    ((key, value),) = argument.items()
    if list(names) == [None]:
        wanted = "a dict only for a model of several outputs"
        check_that(not isinstance(value, dict), wanted, **argument)
        return {None: value}
    if key == "from_logits" and not isinstance(value, dict):
        value = dict.fromkeys(names, value)
    is_of_names = value is None or isinstance(value, dict) and set(value) <= set(names)
    wanted = f"a dict by output, of {', '.join(map(repr, names))}"
    check_that(is_of_names, wanted, **argument)
    return {name: (value or {}).get(name) for name in names}


class ModelOutput:
    """One output of a model: its kind, and its numbers as probabilities.

    Args:
        model: the `keras.Model`.
        name: of the output; None for the only one.
        example: array of the output, for rows of at least one token.
        labels, kind, from_logits: of `TextModel`, for this output.
    """

    def __init__(self, model, name, example, labels=None, kind=None, from_logits=None):
        self.name = name
        size = 1 if example.ndim == 1 else example.shape[-1]
        wanted = "True, False or None"
        check_that(from_logits in (None, True, False), wanted, from_logits=from_logits)
        self._is_probability = not from_logits
        activation = _last_activation(model, name)
        if from_logits is None:
            self._is_probability = gives_probabilities(activation, example)
        fitting = [k for k in _KINDS_BY_RANK[example.ndim] if k != "regress" or size == 1]
        shape = ("(batch,)", f"(batch, {size})", f"(batch, length, {size})")[example.ndim - 1]
        wanted = f"one of {', '.join(map(repr, fitting))} for an output of shape {shape}"
        check_that(kind is None or kind in fitting, wanted, kind=kind)
        if kind is None and labels is None and example.ndim == 3:
            raise ValueError(
                f"{describe_output(name)} has the shape {shape}: give the `labels` of its words, "
                "or `kind='tag'` for their numbers; pool it for one of each text. "
                "Received: labels=None, kind=None."
            )
        has_sigmoids = size > 1 and activation == "sigmoid"
        if kind is None and labels is not None and has_sigmoids:
            raise ValueError(
                f"{describe_output(name)} may have several classes at once: leave out the `labels` "
                f"for its numbers, or give `kind={fitting[0]!r}` for the likeliest class. "
                f"Received: labels={labels!r}, kind=None, a sigmoid of {size} numbers."
            )
        self.kind = self._kind(fitting, labels, has_sigmoids) if kind is None else kind
        if self.kind in ("regress", "embed"):
            check_that(labels is None, f"None for the kind {self.kind!r}", labels=labels)
            return
        num_classes = max(2, size)
        labels = [*map(str, range(num_classes))] if labels is None else labels
        check_labels(labels, num_classes)
        self.labels = tuple(labels)
        if self._is_probability is None:
            raise ValueError(
                f"{describe_output(name)} may be logits or probabilities: give `from_logits`, "
                "True for logits. Received: from_logits=None, numbers between 0 and 1."
            )

    def _kind(self, fitting, labels, has_sigmoids):
        """Return the kind of those that fit which an output has, with labels or without."""
        if labels is not None and "classify" in fitting:
            return "classify"
        is_vector = fitting[0] == "classify" and (has_sigmoids or not self._is_probability)
        return "embed" if is_vector else fitting[0]

    def probabilities_or_values(self, outputs, is_token):
        """Return values, features or probabilities, 0 where `is_token` (B, T) is not True."""
        if self.kind in ("classify", "tag"):
            outputs = self._probabilities(outputs)
        if self.kind == "regress":
            outputs = tf.reshape(outputs, [-1])
        if self.kind != "tag":
            is_token = tf.reduce_any(is_token, axis=1)
        if outputs.shape.rank > is_token.shape.rank:
            is_token = tf.expand_dims(is_token, -1)
        return tf.where(is_token, outputs, 0.0)

    def _probabilities(self, outputs):
        if outputs.shape.rank == 1:
            outputs = tf.expand_dims(outputs, 1)
        if outputs.shape[-1] > 1:
            return outputs if self._is_probability else tf.nn.softmax(outputs)
        second = outputs if self._is_probability else tf.sigmoid(outputs)
        return tf.concat([1 - second, second], axis=-1)

    def by_name(self, numbers):
        """Return the outputs of the kind by name, of `numbers`, with the numbers of the classes."""
        if self.kind in ("classify", "tag"):
            classes = tf.argmax(numbers, axis=-1, output_type=tf.int32)
            return {"probabilities": numbers, "class": classes}
        return {"value" if self.kind == "regress" else "features": numbers}


def gives_probabilities(activation, example):
    """Return True if a model's output are probabilities, False for logits, None if it may be both.

    The last activation decides, where it is one of Keras; else the numbers of an example.
    """
    if activation in ("softmax", "sigmoid"):
        return True
    if activation == "linear":
        return False
    if example.min() < 0 or example.max() > 1:
        return False
    sums = example.sum(axis=-1)
    is_softmax = example.ndim > 1 and example.shape[-1] > 1 and np.allclose(sums, 1, atol=1e-3)
    return True if is_softmax else None


def _last_activation(model, name):
    """Return the name of the activation that an output is computed with; None if it is unknown.

    A layer that only casts, as the last one under mixed precision, passes on the one before it.
    """
    if is_functional(model):
        tensor = dict(named_outputs(model, model.output))[name]
        operation = _operation_of(model, tensor)
        while _passes_on(operation):
            operation = _operation_of(model, operation.input)
    elif isinstance(model, keras.Sequential):
        operation = next((layer for layer in reversed(model.layers) if not _passes_on(layer)), None)
    else:
        return None  # the order of the layers of a subclass says nothing
    if isinstance(operation, keras.Model):
        is_plain = is_functional(operation) and len(operation.outputs) == 1
        is_plain = is_plain or isinstance(operation, keras.Sequential)
        return _last_activation(operation, None) if is_plain else None
    # Of other layers it may be that of an inner part; operations have their own names.
    is_last = isinstance(operation, _ACTIVATED) or not hasattr(operation, "activation")
    activation = getattr(operation, "activation", type(operation)) if is_last else None
    return getattr(activation, "__name__", "").lower() or None


_ACTIVATED = (
    keras.layers.Activation,
    keras.layers.Conv1D,
    keras.layers.Dense,
    keras.layers.EinsumDense,
)


def _operation_of(model, tensor):
    """Return the layer or operation of a functional model that computes a tensor, or None."""
    for operation in model.operations:
        if any(x is tensor for x in keras.tree.flatten(operation.output)):
            return operation
    return None


def _passes_on(operation):
    """Return True for a layer whose outputs are its inputs when no model is trained."""
    if isinstance(operation, keras.layers.Activation):
        return operation.activation is keras.activations.linear
    return isinstance(operation, (keras.layers.Dropout, keras.layers.Identity))
