"""Signatures of encoder-decoders: source ids or texts to generated ids or texts."""

import functools

import tensorflow as tf
from keras import ops

from keras_attn.export.checks import check_end, check_lengths
from keras_attn.export.signatures.compiled_decoding import decoding_function
from keras_attn.export.signatures.model_functions import (
    ModelFunctions,
    blank_rows,
    halting_function,
    halting_outputs,
    ids_function,
    ids_method,
    length_mask,
    mask_ids,
    text_function,
    text_method,
    unify_ends,
)
from keras_attn.generation.decoding import get_strategy
from keras_attn.generation.tokens import check_vocabularies, ends_of, start_of


class IdTranslator(ModelFunctions):
    """Encoder-decoder and decoding strategy as one graph, from ids to ids.

        ids -> generate(model, ids)

    Args:
        model: an `EncoderDecoder`.
        strategy: name or object of a decoding strategy.
        max_length: int. Most tokens to generate.
        max_source_length: int. Most source tokens to read, the end token included. A longer source
            is truncated to this length, or to the number of the model's source positions; by
            default to these, or to 1024 without a limit.
        eos_id: int, or a list of several. The token that ends a sequence, by default 3.
        bos_id: int. The token before the first target token, by default the model's `start_id`, or
            2.
        buckets: a `Buckets`. The shapes for which XLA compiles the decoding, by default none.

    Raises:
        ValueError: if a length is below 1, or the model has too few positions for `max_length`.

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.transformer(10, 1, 2, 8, 16)
        >>> translator = keras_attn.export.IdTranslator(model, max_length=4)
        >>> translator.ids([[5, 3]], [2])["ids"].shape
        TensorShape([1, 4])

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 6.1.
    """

    decodes = True

    @classmethod
    def fits(cls, model, options):
        return not getattr(model, "reads_prompt", True) and options.tokenizer is None

    @classmethod
    def from_options(cls, model, options):
        return cls(model, *options.decoding, options.bos_id, options.buckets)

    def __init__(
        self,
        model,
        strategy="greedy",
        max_length=64,
        max_source_length=None,
        eos_id=None,
        bos_id=None,
        buckets=None,
    ):
        strategy, ends = get_strategy(strategy), ends_of(eos_id)
        super().__init__(model, *strategy.models)
        if max_source_length is None:
            max_source_length = getattr(model, "max_source_length", None) or 1024
        check_lengths(model, max_length, max_source_length=max_source_length)
        if model.max_source_length is not None:
            max_source_length = min(max_source_length, model.max_source_length)
        self._bos_id = start_of(model) if bos_id is None else bos_id
        self.buckets = None if buckets is None else buckets.up_to(max_source_length)
        options = {"max_length": max_length, "bos_id": self._bos_id, "eos_id": ends}
        self._decode = decoding_function(model, strategy, self.buckets, **options)
        self._max_source_length = max_source_length
        self._pad_id = getattr(model, "pad_id", 0) or 0
        self._ends, self._halting = ends, halting_function(model)
        if self._halting is not None:
            self.halting = ids_function(self._halting_of_ids, "source_ids", "source_lengths")

    @property
    def signatures(self):
        return {"ids": self.ids, "serving_default": self.ids, **self.halting_signatures}

    @ids_method("source_ids", "source_lengths")
    def ids(self, source_ids, source_lengths):
        """Map ids [B, S] with `source_lengths` [B] to `ids` [B, L] and `score` [B].

        Ids beyond a row's length are ignored, so a server may pad with any value. A row of length 0
        gives padding with score 0.
        """
        return self.decode_rows(source_ids, source_lengths, self._decode)

    def decode_rows(self, source_ids, source_lengths, decode):
        """Return the outputs of `ids`, decoded by a function of the sources and their lengths."""
        source_ids = self.read_ids(source_ids, source_lengths)[:, : self._max_source_length]
        outputs = decode(source_ids, source_lengths)
        ids, score = blank_rows(source_lengths < 1, *outputs, self._pad_id)
        return {"ids": ids, "score": score}

    def _halting_of_ids(self, source_ids, source_lengths):
        """Map the inputs of `ids` to its outputs, and the steps and remainders of both sides.

        `source_steps` and `source_remainders` [B, S] are those of the encoder. `steps` and
        `remainders` [B, L] are those by which the decoder writes each of `ids`, 0 after the end. A
        side without an `ACT` has none.
        """
        outputs = self.ids(source_ids, source_lengths)
        _, is_valid = _until_end(outputs["ids"], source_lengths, self._ends)
        source_ids = source_ids[:, : self._max_source_length]
        source_lengths = tf.minimum(source_lengths, tf.shape(source_ids)[1])
        steps = self._sides_halting(source_ids, source_lengths, outputs["ids"], is_valid)
        return {**outputs, **steps}

    def _sides_halting(self, source_ids, source_lengths, ids, is_valid):
        """Return the steps and remainders of the model's sides, for generated ids (B, L)."""
        inputs = {
            "source_ids": mask_ids(source_ids, source_lengths, self._pad_id),
            "target_ids": _read_before(ids, self._bos_id),
        }
        sides, outputs = self._halting(inputs), {}
        masks = {"encoder": length_mask(source_ids, source_lengths), "decoder": is_valid}
        for name, halting in sides.items():
            prefix = "source_" if name == "encoder" else ""
            outputs |= halting_outputs(halting, masks[name], prefix)
        return outputs


class Translator(IdTranslator):
    """Tokenizer, encoder-decoder and decoding strategy as one graph, from text to text.

        text -> ids -> generate(model, ids) -> text

    `saved_model` exports these functions, so a server gives the results that they give in Python.
    A text without tokens, such as an empty one, gives an empty text with score 0.

    Args:
        model: an `EncoderDecoder`.
        tokenizer: from `keras_attn.text`.
        strategy, max_length, max_source_length: as for `IdTranslator`.
        eos_id: int, or a list of several. The token that ends a sequence, by default that of the
            tokenizer. No end token is part of the text.
        bos_id: int. The token before the first target token, by default the model's `start_id`, or
            that of the tokenizer.
        buckets: as for `IdTranslator`.

    Raises:
        ValueError: as `IdTranslator`, or if the vocabularies of model and tokenizer differ in size.

    Example:
        >>> import keras_attn
        >>> tokenizer = keras_attn.text.Characters.train(["ab"])
        >>> model = keras_attn.models.transformer(tokenizer.vocabulary_size, 1, 2, 8, 16)
        >>> translator = keras_attn.export.Translator(model, tokenizer, max_length=4)
        >>> translator.text(["", "ab"])["translation"].shape
        TensorShape([2])

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 6.1.
    """

    @classmethod
    def fits(cls, model, options):
        return not getattr(model, "reads_prompt", True) and options.tokenizer is not None

    @classmethod
    def from_options(cls, model, options):
        return cls(model, options.tokenizer, *options.decoding, options.bos_id, options.buckets)

    def __init__(
        self,
        model,
        tokenizer,
        strategy="greedy",
        max_length=64,
        max_source_length=None,
        eos_id=None,
        bos_id=None,
        buckets=None,
    ):
        check_end(tokenizer)
        ends = ends_of(eos_id, tokenizer)
        bos_id = start_of(model, tokenizer) if bos_id is None else bos_id
        super().__init__(model, strategy, max_length, max_source_length, ends, bos_id, buckets)
        check_vocabularies(model, tokenizer)
        self.tokenizer, self._pad_id = tokenizer, tokenizer.fill_id
        self._source_tokenizer = tokenizer.for_sources()
        self._unify_ends = lambda ids: unify_ends(ids, ends, tokenizer.eos_id)
        self._cross_attention = getattr(model, "cross_attention", None)
        if self._halting is not None:
            self.halting = text_function(self._halting_of_text)

    def make_resources(self):
        resources = super().make_resources()
        resources.source_tokenizer = self._source_tokenizer
        return resources

    @property
    def signatures(self):
        signatures = {"ids": self.ids, "serving_default": self.text, **self.halting_signatures}
        if self._cross_attention is not None:  # a model of the user's own may lack it
            signatures["attention"] = self.attention
        return signatures

    @text_method
    def text(self, text):
        """Map strings [B] to `translation`, strings [B], and `score`, float32 [B]."""
        *_, ids, score = self._translate(text)
        return {"translation": self.tokenizer.decode(ids), "score": score}

    @text_method
    def attention(self, text):
        """Map strings [B] to the outputs of `text`, the tokens and their cross-attention weights.

        `source_tokens` [B, S] and `tokens` [B, T] are strings, of which the first `source_lengths`
        and `lengths` [B] are valid. The end token counts as valid and is an empty string.
        `cross_attention`, float32 [B, L, N, T, S], has N heads of each of L layers: the row of a
        valid token sums to 1, any other row is 0. An empty text has no tokens.
        """
        outputs, source_ids, ids, is_valid = self._translate_to_tokens(text)
        weights = self._cross_attention(
            {"source_ids": source_ids, "target_ids": _read_before(ids, self._bos_id)},
            tf.sequence_mask(outputs["source_lengths"], tf.shape(source_ids)[1]),
        )
        weights = tf.where(ops.expand_dims(is_valid, (1, 2, 4)), weights, 0.0)
        return {**outputs, "cross_attention": weights}

    def _halting_of_text(self, text):
        """Map strings [B] to the outputs of `attention` but for the weights, and the steps.

        `source_steps` and `source_remainders` [B, S] are those of the encoder. `steps` and
        `remainders` [B, T] are those by which the decoder writes each of `tokens`. A side without
        an `ACT` has none.
        """
        outputs, source_ids, ids, is_valid = self._translate_to_tokens(text)
        lengths = outputs["source_lengths"]
        return {**outputs, **self._sides_halting(source_ids, lengths, ids, is_valid)}

    def _translate_to_tokens(self, text):
        """Return the outputs of a translation by tokens, source ids, ids, and their mask."""
        source_ids, source_lengths, ids, score = self._translate(text)
        lengths, is_valid = _until_end(ids, source_lengths, [self.tokenizer.eos_id])
        longest = tf.reduce_max(tf.concat([lengths, [0]], axis=0))  # 0 for an empty batch
        ids, is_valid = ids[:, :longest], is_valid[:, :longest]
        outputs = {
            "translation": self.tokenizer.decode(ids),
            "score": score,
            "source_tokens": self._source_tokenizer.tokens(source_ids),
            "source_lengths": source_lengths,
            "tokens": self.tokenizer.tokens(ids),
            "lengths": lengths,
        }
        return outputs, source_ids, ids, is_valid

    def translate(self, texts, batch_size=64):
        """Translate Python strings to (translations, scores), lists in the order of `texts`.

        Texts of similar length share a batch.
        """
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        translations, scores = [""] * len(texts), [0.0] * len(texts)
        for start in range(0, len(texts), batch_size):
            rows = order[start : start + batch_size]
            outputs = self.text(tf.constant([texts[row] for row in rows]))
            results = zip(outputs["translation"].numpy(), outputs["score"].numpy(), strict=True)
            for row, (translation, score) in zip(rows, results, strict=True):
                translations[row], scores[row] = translation.decode(), float(score)
        return translations, scores

    def _translate(self, text):
        """Return source ids, their lengths, generated ids and score; blank for an empty text."""
        source_ids, lengths = self.tokenizer.encode(text, max_length=self._max_source_length)
        template = self.tokenizer.template
        is_empty = lengths <= len(template.start) + len(template.end)  # special tokens alone
        outputs = self._decode(source_ids, lengths)
        ids, score = blank_rows(is_empty, *outputs, self._pad_id)
        source_ids = tf.where(tf.expand_dims(is_empty, 1), self._pad_id, source_ids)
        return source_ids, tf.where(is_empty, 0, lengths), self._unify_ends(ids), score


def _until_end(ids, source_lengths, ends):
    """Return the lengths (B,) of generated ids with their end token, and their mask (B, L)."""
    is_end = functools.reduce(tf.logical_or, [ids == token for token in ends])
    ended = tf.cumsum(tf.cast(is_end, tf.int32), axis=1, exclusive=True)
    is_valid = (ended == 0) & (tf.expand_dims(source_lengths, 1) > 0)
    return tf.math.count_nonzero(is_valid, axis=1, dtype=tf.int32), is_valid


def _read_before(ids, bos_id):
    """Return what the decoder reads when it writes each of `ids` (B, L)."""
    read = tf.concat([tf.fill([tf.shape(ids)[0], 1], bos_id), ids], axis=1)
    return read[:, : tf.shape(ids)[1]]
