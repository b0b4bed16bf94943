"""Signatures of causal models: prompts to continuations, and sequences to log-probabilities."""

import tensorflow as tf

from keras_attn.export.checks import check_end, check_lengths
from keras_attn.export.signatures.compiled_decoding import decoding_function
from keras_attn.export.signatures.model_functions import (
    ModelFunctions,
    blank_rows,
    halting_function,
    ids_function,
    ids_method,
    text_function,
    text_method,
    token_halting,
    unify_ends,
)
from keras_attn.generation.decoding import get_strategy
from keras_attn.generation.tokens import check_vocabularies, ends_of
from keras_attn.ops.token_losses import crossentropy


class TokenGenerator(ModelFunctions):
    """Causal model and decoding strategy as one graph, from ids to ids.

        ids -> generate(model, ids)        ids -> sum_{i >= 2} log p(x_i | x_<i)

    Args:
        model: a `CausalLanguageModel` without a memory.
        strategy: name or object of a decoding strategy.
        max_length: int. Most tokens to generate.
        max_prompt_length: int. Most tokens to read: of a longer prompt the last ones. Fewer if the
            model has not enough positions for these and for `max_length`.
        eos_id: int, or a list of several. The token that ends a sequence, by default 3.
        buckets: a `Buckets`. The shapes for which XLA compiles the decoding, by default none.

    Raises:
        ValueError: if a length is below 1, or the model has too few positions for `max_length`.

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.gpt(vocabulary_size=10, num_layers=1, num_heads=2,
        ...     hidden_dim=8, intermediate_dim=16, max_length=32)
        >>> generator = keras_attn.export.TokenGenerator(model, max_length=4, max_prompt_length=28)
        >>> generator.ids([[5, 4]], [2])["ids"].shape
        TensorShape([1, 4])

    Reference: [Radford et al., 2018](https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf),
        section 3.1, eq. 1.
    """

    decodes = True

    @classmethod
    def fits(cls, model, options):
        return getattr(model, "reads_prompt", False) and options.tokenizer is None

    @classmethod
    def from_options(cls, model, options):
        return cls(model, *options.decoding, options.buckets)

    def __init__(
        self,
        model,
        strategy="greedy",
        max_length=64,
        max_prompt_length=960,
        eos_id=None,
        buckets=None,
    ):
        strategy, ends = get_strategy(strategy), ends_of(eos_id)
        super().__init__(model, *strategy.models)
        positions = check_lengths(model, max_length, max_prompt_length=max_prompt_length)
        max_scored_length = max_prompt_length + max_length
        if positions is not None:
            # The last generated token is not read.
            max_prompt_length = min(max_prompt_length, positions - max_length + 1)
            max_scored_length = min(max_scored_length, positions)
        self.buckets = None if buckets is None else buckets.up_to(max_prompt_length)
        options = {"max_length": max_length, "eos_id": ends}
        self._generate = decoding_function(model, strategy, self.buckets, **options)
        self._logits = lambda ids: model({"token_ids": ids})
        self._pad_id = getattr(model, "pad_id", 0) or 0
        self._max_prompt_length = max_prompt_length
        self._max_scored_length = max_scored_length
        self._halting = halting_function(model)
        if self._halting is not None:
            self.halting = ids_function(self._halting_of_ids)

    @property
    def signatures(self):
        own = {"ids": self.ids, "score": self.score_ids, "serving_default": self.ids}
        return {**own, **self.halting_signatures}

    @ids_method()
    def ids(self, token_ids, lengths):
        """Map prompts [B, S] with `lengths` [B] to `ids` [B, L] and `score` [B].

        Ids beyond a row's length are ignored, so a server may pad with any value. A row of length 0
        gives padding with score 0.
        """
        return self.decode_rows(token_ids, lengths, self._generate)

    def decode_rows(self, token_ids, lengths, decode):
        """Return the outputs of `ids`, decoded by a function of the prompts and their lengths."""
        *_, ids, score = self._continue(token_ids, lengths, decode)
        return {"ids": ids, "score": score}

    @ids_method()
    def score_ids(self, token_ids, lengths):
        """Map ids [B, S] with `lengths` [B] to `log_probability` [B] and `num_tokens` [B].

        Each token is predicted from those before it, so the first is not scored. Of a sequence
        longer than prompt and continuation together, the first tokens are scored.
        """
        return self._log_probability(token_ids, lengths)

    def _halting_of_ids(self, token_ids, lengths):
        """Map ids [B, T] with `lengths` [B] to `steps` and `remainders` [B, T]."""
        token_ids = self.read_ids(token_ids, lengths, self._pad_id)[:, : self._max_scored_length]
        lengths = tf.minimum(lengths, tf.shape(token_ids)[1])
        return token_halting(self._halting, token_ids, lengths, self._pad_id)

    def _continue(self, token_ids, lengths, decode):
        """Return the prompts that the model reads, their lengths, the new ids and the score."""
        token_ids = self._read(token_ids, lengths)
        read = tf.minimum(lengths, self._max_prompt_length)
        width = tf.minimum(tf.shape(token_ids)[1], self._max_prompt_length)
        last = tf.shape(token_ids)[1] - 1
        indices = tf.minimum(tf.expand_dims(lengths - read, 1) + tf.range(width), last)
        prompt = tf.gather(token_ids, indices, batch_dims=1)
        prompt = tf.where(tf.sequence_mask(read, width), prompt, self._pad_id)
        outputs = decode(prompt, read)
        return prompt, read, *blank_rows(lengths < 1, *outputs, self._pad_id)

    def _log_probability(self, token_ids, lengths):
        token_ids = self._read(token_ids, lengths)[:, : self._max_scored_length]
        labels = token_ids[:, 1:]
        losses = crossentropy(labels, self._logits(token_ids)[:, :-1])
        scored = tf.maximum(tf.minimum(lengths, tf.shape(token_ids)[1]) - 1, 0)
        is_scored = tf.sequence_mask(scored, tf.shape(labels)[1])
        return {
            "log_probability": -tf.reduce_sum(tf.where(is_scored, losses, 0.0), axis=1),
            "num_tokens": scored,
        }

    def _read(self, token_ids, lengths):
        """Return the ids of a request with one more column of padding: there is a first token."""
        token_ids = self.read_ids(token_ids, lengths, self._pad_id)
        return tf.pad(token_ids, [[0, 0], [0, 1]], constant_values=self._pad_id)


class TextGenerator(TokenGenerator):
    """Tokenizer, causal model and decoding strategy as one graph, from text to text.

        text -> ids -> generate(model, ids) -> text        text -> log p(text | its first token)

    `saved_model` exports these functions, so a server gives the results that they give in Python.
    A text without tokens, such as an empty one where no start token is put in front, gives an empty
    text with score 0.

    Args:
        model: a `CausalLanguageModel` without a memory.
        tokenizer: from `keras_attn.text`.
        strategy, max_length, max_prompt_length: as for `TokenGenerator`.
        eos_id: int, or a list of several. The token that ends a sequence, by default that of the
            tokenizer. No end token is part of the text.
        buckets: as for `TokenGenerator`.

    Raises:
        ValueError: as `TokenGenerator`, or if the vocabularies of model and tokenizer differ in
            size.

    Example:
        >>> import keras_attn
        >>> tokenizer = keras_attn.text.Characters.train(["ab"])
        >>> model = keras_attn.models.gpt(tokenizer.vocabulary_size, num_layers=1, num_heads=2,
        ...     hidden_dim=8, intermediate_dim=16, max_length=32)
        >>> generator = keras_attn.export.TextGenerator(
        ...     model, tokenizer, max_length=4, max_prompt_length=28)
        >>> generator.text(["", "ab"])["continuation"].shape
        TensorShape([2])
        >>> generator.score(["", "ab"])["num_tokens"].numpy().tolist()
        [0, 1]

    Reference: [Radford et al., 2018](https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf),
        section 3.1, eq. 1.
    """

    @classmethod
    def fits(cls, model, options):
        return getattr(model, "reads_prompt", False) and options.tokenizer is not None

    @classmethod
    def from_options(cls, model, options):
        return cls(model, options.tokenizer, *options.decoding, options.buckets)

    def __init__(
        self,
        model,
        tokenizer,
        strategy="greedy",
        max_length=64,
        max_prompt_length=960,
        eos_id=None,
        buckets=None,
    ):
        check_end(tokenizer)
        ends = ends_of(eos_id, tokenizer)
        super().__init__(model, strategy, max_length, max_prompt_length, ends, buckets)
        check_vocabularies(model, tokenizer)
        self.tokenizer, self._pad_id = tokenizer, tokenizer.fill_id
        self._unify_ends = lambda ids: unify_ends(ids, ends, tokenizer.eos_id)
        if self._halting is not None:
            self.halting = text_function(self._halting_of_text)

    @property
    def signatures(self):
        own = {"ids": self.ids, "score": self.score, "serving_default": self.text}
        return {**own, **self.halting_signatures}

    @text_method
    def text(self, text):
        """Map strings [B] to `continuation`, strings [B], and `score`, float32 [B]."""
        prompt, lengths, ids, score = self._continue(*self._encode(text), self._generate)
        # Prompt and new ids are decoded together: alone, the first new piece would lose its space.
        # Padding between them is removed: it may be the end token.
        rows = [tf.RaggedTensor.from_tensor(prompt, lengths), self._unify_ends(ids)]
        whole = self.tokenizer.decode(tf.concat(rows, axis=1).to_tensor(self._pad_id))
        read = tf.strings.length(self.tokenizer.decode(prompt))
        generated = tf.strings.length(whole) - read
        return {"continuation": tf.strings.substr(whole, read, generated), "score": score}

    @text_method
    def score(self, text):
        """Map strings [B] to `log_probability` and `num_tokens` [B], as `score_ids` does."""
        return self._log_probability(*self._encode(text))

    def _halting_of_text(self, text):
        """Map strings [B] to `tokens`, `steps` and `remainders` [B, T], and `lengths` [B]."""
        token_ids, lengths = self._encode(text)
        token_ids = token_ids[:, : self._max_scored_length]
        lengths = tf.minimum(lengths, tf.shape(token_ids)[1])
        tokens = {"tokens": self.tokenizer.tokens(token_ids), "lengths": lengths}
        return {**tokens, **self._halting_of_ids(token_ids, lengths)}

    def _encode(self, text):
        """Return ids and lengths, without the end token: the model continues the text."""
        return self.tokenizer.encode(text, end=False)
