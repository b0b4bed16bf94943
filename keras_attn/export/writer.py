"""Text in, what follows it out: tokenizer, causal model and decoding as one graph."""

import tensorflow as tf

from keras_attn.export.id_writer import TokenGenerator
from keras_attn.export.vocabularies import check_vocabularies


class TextGenerator(TokenGenerator):
    """A causal model with its tokenizer and decoding strategy, as functions of strings.

        text -> ids -> generate(model, ids) -> text        text -> log p(text | its first token)

    What is exported is exactly this object, so that what it answers in Python is what a server
    answers. An empty text is answered by an empty text with score 0.

    Args:
        model: a `CausalLanguageModel` without a memory.
        tokenizer: from `keras_attn.text`.
        strategy: name or object of a decoding strategy.
        max_length: int. Most tokens to write.
        max_prompt_length: int. Most tokens to read: of a longer prompt the last ones. Fewer where
            the model has no positions for so many and for what is written.

    Raises:
        ValueError: if the vocabularies of model and tokenizer differ in size, a length is below 1,
            or the model has too few positions for `max_length`.

    Example:
        >>> import keras_attn
        >>> tokenizer = keras_attn.text.Characters.train(["ab"])
        >>> model = keras_attn.models.gpt(tokenizer.vocabulary_size, num_layers=1, num_heads=2,
        ...     hidden_dim=8, intermediate_dim=16, max_length=32)
        >>> writer = keras_attn.export.TextGenerator(model, tokenizer, max_length=4, max_prompt_length=28)
        >>> writer.text(["", "ab"])["continuation"].shape
        TensorShape([2])
        >>> writer.score(["", "ab"])["num_tokens"].numpy().tolist()
        [0, 1]

    Reference: [Radford et al., 2018](https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf),
        section 3.1, eq. 1.
    """

    def __init__(self, model, tokenizer, strategy="greedy", max_length=64, max_prompt_length=960):
        super().__init__(model, strategy, max_length, max_prompt_length)
        check_vocabularies(model, tokenizer)
        self.tokenizer = tokenizer

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def text(self, text):
        """Strings [B] -> `continuation`, strings [B], and `score`, float32 [B]."""
        prompt, ids, score = self._continue(*self._encode(text))
        # Read together: alone, the first piece would lose the space that it may begin with.
        whole = self.tokenizer.decode(tf.concat([prompt, ids], axis=1))
        read = tf.strings.length(self.tokenizer.decode(prompt))
        written = tf.strings.length(whole) - read
        return {"continuation": tf.strings.substr(whole, read, written), "score": score}

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def score(self, text):
        """Strings [B] -> `log_probability`, float32 [B], of `num_tokens`, int32 [B].

        Each token is predicted from those before it, so all but the first are. Of more tokens than
        are read and written at most, the first are scored.
        """
        return self._log_probability(*self._encode(text))

    def _encode(self, text):
        """Ids and lengths, without the mark of the end: the text is to go on."""
        token_ids, lengths = self.tokenizer.encode(text)
        return token_ids, lengths - 1
