"""Signatures of classifiers of texts: strings to labels and probabilities."""

import tensorflow as tf

from keras_attn.export.checks import check_labels, check_padding, check_reads
from keras_attn.export.signatures.class_predictor import ClassPredictor
from keras_attn.export.signatures.model_functions import mask_ids, of_text

_PAIR = [tf.TensorSpec([None], tf.string, name) for name in ("text", "second_text")]


class TextClassifier(ClassPredictor):
    """Tokenizer and classifier as one graph, from text to labels.

        text -> ids -> softmax(logits) -> label

    With one class the output is a `value`, the logit itself, as a regression has it; without
    classes it is the `features`.

    Args:
        model: a `keras_attn.models.Classifier` of token ids.
        tokenizer: from `keras_attn.text`.
        labels: list of the classes' names, in their order; by default their numbers.
        max_length: int. Most tokens of a text, or of a pair, to read; a longer one loses its end.

    Raises:
        ValueError: if the number of labels is not that of the classes, the tokenizer has ids that
            the model lacks, or the model reads images.

    Example:
        >>> import keras_attn
        >>> from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
        >>> block = TransformerBlock(MultiHeadAttention(2, 4), FeedForward(16))
        >>> tokenizer = keras_attn.text.Characters("abc")
        >>> model = keras_attn.models.Classifier(
        ...     keras_attn.layers.TokenEmbedding(7, 8), keras_attn.depth.Stack([block]), 2)
        >>> classifier = keras_attn.export.TextClassifier(model, tokenizer, ["no", "yes"])
        >>> classifier.text(["a", "cab"])["label"].numpy().tolist()
        [b'no', b'no']

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 4.1.
    """

    def __init__(self, model, tokenizer, labels=None, max_length=1024):
        super().__init__(model)
        check_reads(model, tokenizer)
        num_classes = model.num_classes or 0
        labels = [*map(str, range(num_classes))] if labels is None else [*labels]
        check_labels(labels, num_classes)
        self.tokenizer, self._labels = tokenizer, tuple(labels)
        self._max_length = min(max_length, model.max_length or max_length)
        self._pad_id = check_padding(model)
        self._reads_segments = "segment_ids" in model.input
        if self.halting is not None:
            self.halting = of_text(self._halting_of_text)

    @property
    def signatures(self):
        """The functions by name: of a text, which is the default, of a pair, and of ids."""
        own = {self.kind: self.text, f"{self.kind}_pair": self.pair}
        own |= {"ids": self.classify, "serving_default": self.text}
        return {**own, **self.halting_signatures}

    @of_text
    def text(self, text):
        """Map strings [B] to `label` [B], `probabilities` [B, K] and their `labels` [B, K]."""
        return self._outputs(*self.tokenizer.encode(text, self._max_length))

    @tf.function(autograph=False, input_signature=_PAIR)
    def pair(self, text, second_text):
        """Map pairs, two strings [B], to the outputs of `text`."""
        return self._outputs(*self.tokenizer.encode_pair(text, second_text, self._max_length))

    def _halting_of_text(self, text):
        """Map strings [B] to `tokens`, `steps` and `remainders` [B, T], and `lengths` [B]."""
        token_ids, lengths = self.tokenizer.encode(text, self._max_length)
        tokens = {"tokens": self.tokenizer.tokens(token_ids), "lengths": lengths}
        return {**tokens, **self._halting(token_ids, lengths)}

    def _outputs(self, token_ids, lengths, segment_ids=None):
        inputs = {"token_ids": mask_ids(token_ids, lengths, self._pad_id)}
        if self._reads_segments:
            inputs["segment_ids"] = segment_ids
        found = self.predict(inputs)
        if "class" not in found:
            return found
        classes = found.pop("class")
        names = tf.constant(self._labels)
        labels = tf.tile(names[None], [tf.shape(classes)[0], 1])
        return {"label": tf.gather(names, classes), **found, "labels": labels}
