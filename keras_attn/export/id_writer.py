"""Ids in, the ids that follow out: a causal model and its decoding as one graph."""

import tensorflow as tf

from keras_attn.export.lengths import check_lengths, real
from keras_attn.generation import generate
from keras_attn.ops.crossentropy import crossentropy


class TokenGenerator(tf.Module):
    """A causal model with its decoding strategy, as functions from tensors to tensors.

        ids -> generate(model, ids)        ids -> sum_{i >= 2} log p(x_i | x_<i)

    Args:
        model: a `CausalLanguageModel` without a memory.
        strategy: name or object of a decoding strategy.
        max_length: int. Most tokens to write.
        max_prompt_length: int. Most tokens to read: of a longer prompt the last ones. Fewer where
            the model has no positions for so many and for what is written.

    Raises:
        ValueError: if a length is below 1, or the model has too few positions for `max_length`.

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.gpt(vocabulary_size=10, num_layers=1, num_heads=2,
        ...     hidden_dim=8, intermediate_dim=16, max_length=32)
        >>> writer = keras_attn.export.TokenGenerator(model, max_length=4, max_prompt_length=28)
        >>> writer.ids([[5, 4]], [2])["ids"].shape
        TensorShape([1, 4])

    Reference: [Radford et al., 2018](https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf),
        section 3.1, eq. 1.
    """

    def __init__(self, model, strategy="greedy", max_length=64, max_prompt_length=960):
        super().__init__()
        positions = check_lengths(model, max_length, max_prompt_length=max_prompt_length)
        max_scored_length = max_prompt_length + max_length
        if positions is not None:
            # The last token written is not read.
            max_prompt_length = min(max_prompt_length, positions - max_length + 1)
            max_scored_length = min(max_scored_length, positions)
        # The weights alone: to track the model would export its optimizer too.
        self.weights = [weight.value for weight in model.weights]
        self._write = lambda ids: generate(model, ids, strategy, max_length)
        self._logits = lambda ids: model({"token_ids": ids}, training=False)
        self._max_prompt_length = max_prompt_length
        self._max_scored_length = max_scored_length

    @tf.function(
        autograph=False,
        input_signature=[
            tf.TensorSpec([None, None], tf.int32, "token_ids"),
            tf.TensorSpec([None], tf.int32, "lengths"),
        ],
    )
    def ids(self, token_ids, lengths):
        """Ids [B, S], of which `lengths` [B] are real -> `ids` [B, L], `score` [B].

        What lies beyond a row's length is ignored, whatever a server padded it with. A row of
        length 0 is answered by padding, with score 0.
        """
        _, ids, score = self._continue(token_ids, lengths)
        return {"ids": ids, "score": score}

    @tf.function(
        autograph=False,
        input_signature=[
            tf.TensorSpec([None, None], tf.int32, "token_ids"),
            tf.TensorSpec([None], tf.int32, "lengths"),
        ],
    )
    def score_ids(self, token_ids, lengths):
        """Ids [B, S], `lengths` [B] -> `log_probability` [B] of `num_tokens` [B].

        Each token is predicted from those before it, so all but the first are. Of more tokens than
        are read and written at most, the first are scored.
        """
        return self._log_probability(token_ids, lengths)

    def _continue(self, token_ids, lengths):
        """The prompts as they are read, what is written after them, and its score."""
        token_ids, lengths = _real(token_ids, lengths)
        read = tf.minimum(lengths, self._max_prompt_length)
        width = tf.minimum(tf.shape(token_ids)[1], self._max_prompt_length)
        places = tf.minimum((lengths - read)[:, None] + tf.range(width), tf.shape(token_ids)[1] - 1)
        prompt = tf.gather(token_ids, places, batch_dims=1)
        prompt = tf.where(tf.sequence_mask(read, width), prompt, 0)
        ids, score = self._write(prompt)
        is_empty = lengths < 1
        return prompt, tf.where(is_empty[:, None], 0, ids), tf.where(is_empty, 0.0, score)

    def _log_probability(self, token_ids, lengths):
        token_ids, lengths = _real(token_ids, lengths)
        token_ids = token_ids[:, : self._max_scored_length]
        labels = token_ids[:, 1:]
        losses = crossentropy(labels, self._logits(token_ids)[:, :-1])
        scored = tf.maximum(tf.minimum(lengths, tf.shape(token_ids)[1]) - 1, 0)
        counts = tf.sequence_mask(scored, tf.shape(labels)[1])
        return {
            "log_probability": -tf.reduce_sum(tf.where(counts, losses, 0.0), axis=1),
            "num_tokens": scored,
        }


def _real(token_ids, lengths):
    """The ids with 0 for what is not real, and one more, so that there is a first token."""
    lengths = tf.clip_by_value(lengths, 0, tf.shape(token_ids)[1])
    token_ids = tf.where(real(token_ids, lengths), token_ids, 0)
    return tf.pad(token_ids, [[0, 0], [0, 1]]), lengths
