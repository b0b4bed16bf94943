"""Text in, text out: tokenizer, model and decoding as one graph."""

import tensorflow as tf

from keras_attn.export.id_translator import IdTranslator
from keras_attn.export.vocabularies import check_vocabularies


class Translator(IdTranslator):
    """A model with its tokenizer and decoding strategy, as functions from tensors to tensors.

        text -> ids -> generate(model, ids) -> text

    What is exported is exactly this object, so that what it answers in Python is what a server
    answers. An empty text, or one of spaces, is answered by an empty text with score 0.

    Args:
        model: an `EncoderDecoder`.
        tokenizer: from `keras_attn.text`.
        strategy: name or object of a decoding strategy.
        max_length: int. Most tokens to write.
        max_source_length: int. Most source tokens to read, the end token included; a longer source
            is cut.

    Raises:
        ValueError: if the vocabularies of model and tokenizer differ in size, or a length is
            below 1.

    Example:
        >>> import keras_attn
        >>> tokenizer = keras_attn.text.Characters.train(["ab"])
        >>> model = keras_attn.models.create(
        ...     "transformer_tiny", vocabulary_size=tokenizer.vocabulary_size)
        >>> translator = keras_attn.export.Translator(model, tokenizer, max_length=4)
        >>> translator.text(["", "ab"])["translation"].shape
        TensorShape([2])

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 6.1.
    """

    def __init__(self, model, tokenizer, strategy="greedy", max_length=64, max_source_length=1024):
        super().__init__(model, strategy, max_length, max_source_length)
        check_vocabularies(model, tokenizer)
        self.tokenizer = tokenizer
        self._cross_attention = getattr(model, "cross_attention", None)

    @property
    def signatures(self):
        """The functions that an export of it offers, by name."""
        signatures = {"ids": self.ids, "serving_default": self.text}
        if self._cross_attention is not None:  # a model of the user's own may lack it
            signatures["attention"] = self.attention
        return signatures

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def text(self, text):
        """Strings [B] -> `translation`, strings [B], and `score`, float32 [B]."""
        _, ids, score = self._translate(text)
        return {"translation": self.tokenizer.decode(ids), "score": score}

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def attention(self, text):
        """Strings [B] -> what `text` gives, its tokens, and what each looked at in the source.

        `source_tokens` [B, S] and `tokens` [B, T] are strings, of which the first `source_lengths`
        and `lengths` [B] are real; the mark of the end is real and has no text. `cross_attention`,
        float32 [B, L, T, S], is the mean over the heads of each of L layers: the row of a real
        token sums to 1, any other is 0. An empty text has no tokens.
        """
        source_ids, ids, score = self._translate(text)
        source_lengths = tf.math.count_nonzero(source_ids, axis=1, dtype=tf.int32)
        ended = tf.cumsum(tf.cast(ids == self.tokenizer.eos_id, tf.int32), axis=1, exclusive=True)
        real = (ended == 0) & (source_lengths[:, None] > 0)
        lengths = tf.math.count_nonzero(real, axis=1, dtype=tf.int32)
        longest = tf.reduce_max(tf.concat([lengths, [0]], axis=0))  # 0 for a batch of none
        ids, real = ids[:, :longest], real[:, :longest]
        read = tf.concat([tf.fill([tf.shape(ids)[0], 1], self.tokenizer.bos_id), ids], axis=1)
        weights = self._cross_attention({"source_ids": source_ids, "target_ids": read[:, :longest]})
        return {
            "translation": self.tokenizer.decode(ids),
            "score": score,
            "source_tokens": self.tokenizer.tokens(source_ids),
            "source_lengths": source_lengths,
            "tokens": self.tokenizer.tokens(ids),
            "lengths": lengths,
            "cross_attention": tf.where(real[:, None, :, None], weights, 0.0),
        }

    def translate(self, texts, batch_size=64):
        """Python strings -> (translations, scores): lists in the order of `texts`.

        Texts of similar length are translated together.
        """
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        translations, scores = [""] * len(texts), [0.0] * len(texts)
        for start in range(0, len(texts), batch_size):
            rows = order[start : start + batch_size]
            outputs = self.text(tf.constant([texts[row] for row in rows]))
            answers = zip(outputs["translation"].numpy(), outputs["score"].numpy(), strict=True)
            for row, (translation, score) in zip(rows, answers, strict=True):
                translations[row], scores[row] = translation.decode(), float(score)
        return translations, scores

    def _translate(self, text):
        """The ids read, those written and the score; of an empty text padding alone, and 0."""
        source_ids, lengths = self.tokenizer.encode(text, max_length=self._max_source_length)
        ids, score = self._decode(source_ids)
        is_empty = lengths <= 1  # nothing but the end token
        source_ids, ids = (tf.where(is_empty[:, None], 0, x) for x in (source_ids, ids))
        return source_ids, ids, tf.where(is_empty, 0.0, score)
