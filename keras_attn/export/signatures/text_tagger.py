"""Signatures of models that label words: strings to words and their labels."""

import tensorflow as tf
from keras import ops

from keras_attn.export.checks import check_labels, check_padding, check_reads
from keras_attn.export.signatures.model_functions import (
    ModelFunctions,
    mask_ids,
    of_text,
)


class TextTagger(ModelFunctions):
    """Tokenizer and token classifier as one graph, from text to labelled words.

        text -> words -> ids -> softmax(logits at each word's first id) -> labels

    Words are separated by spaces, tabs and line ends. The tokenizer reads each with a space before
    it.

    Args:
        model: a `MaskedLanguageModel` whose head gives the logits of K classes.
        tokenizer: from `keras_attn.text`.
        labels: list of the K names of the classes, in their order.
        max_length: int. Most tokens of a text to read; words after them have no label.

    Raises:
        ValueError: if the number of labels is not that of the classes, or the tokenizer has ids
            that the model lacks.

    Example:
        >>> import keras, keras_attn
        >>> bert = keras_attn.models.bert(7, num_layers=1, num_heads=2, hidden_dim=8,
        ...     intermediate_dim=16, max_length=32)
        >>> head = keras.layers.Dense(2, kernel_initializer="zeros")
        >>> model = keras_attn.models.MaskedLanguageModel(
        ...     bert.embedding, bert.position, bert.segment, bert.norm, bert.encoder, head)
        >>> tagger = keras_attn.export.TextTagger(
        ...     model, keras_attn.text.Characters("abc"), ["noun", "verb"])
        >>> tagger.text(["ab  c"])["labels"].numpy().tolist()
        [[b'noun', b'noun']]

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 5.3.
    """

    def __init__(self, model, tokenizer, labels, max_length=1024):
        super().__init__(model)
        check_reads(model, tokenizer)
        check_labels(labels, model.output.shape[-1])
        self.tokenizer, self._labels = tokenizer, tuple(labels)
        self._max_length = min(max_length, model.max_length or max_length)
        pad_id = check_padding(model)
        self._logits = lambda *ids: model({"token_ids": mask_ids(*ids, pad_id)})

    @property
    def signatures(self):
        return {"tag": self.text, "serving_default": self.text}

    @of_text
    def text(self, text):
        """Map strings [B] to their `words` [B, W], and `labels` and `probabilities` [B, W].

        A text with fewer words than the longest has empty strings at the end. Empty words, and
        words that were not read, have an empty label of probability 0.
        """
        words = tf.strings.split(text)
        template = self.tokenizer.template
        start, end = len(template.start), len(template.end)
        ids, lengths = self.tokenizer.encode(tf.strings.join([" ", words.flat_values]))
        pieces = tf.RaggedTensor.from_tensor(ids[:, start:], lengths - start - end)
        pieces = words.with_values(pieces)  # (B, W, number of the word's ids)
        counts = tf.cast(pieces.row_lengths(axis=2).to_tensor(), tf.int32)
        first = start + tf.cumsum(counts, axis=1, exclusive=True)  # (B, W)
        rows = template.around(pieces.merge_dims(1, 2), self._max_length)
        lengths = tf.cast(rows.row_lengths(), tf.int32)
        ids = rows.to_tensor(0)
        is_read = (counts > 0) & (first < lengths[:, None] - end)
        found = ops.softmax(tf.cast(self._logits(ids, lengths), tf.float32))  # (B, T, K)
        found = tf.gather(found, tf.where(is_read, first, 0), batch_dims=1)  # (B, W, K)
        labels = tf.gather(tf.constant(self._labels), tf.argmax(found, axis=-1))
        return {
            "words": words.to_tensor(""),
            "labels": tf.where(is_read, labels, ""),
            "probabilities": tf.where(is_read, tf.reduce_max(found, axis=-1), 0.0),
        }
