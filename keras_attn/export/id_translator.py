"""Ids in, ids out: model and decoding as one graph."""

import tensorflow as tf

from keras_attn.export.lengths import check_lengths, real
from keras_attn.generation import generate


class IdTranslator(tf.Module):
    """A model with its decoding strategy, as a function from tensors to tensors.

        ids -> generate(model, ids)

    Args:
        model: an `EncoderDecoder`.
        strategy: name or object of a decoding strategy.
        max_length: int. Most tokens to write.
        max_source_length: int. Most source tokens to read, the end token included; a longer source
            is cut, as is one that the model has no positions for.

    Raises:
        ValueError: if a length is below 1, or the model has too few positions for `max_length`.

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.create("transformer_tiny", vocabulary_size=10)
        >>> translator = keras_attn.export.IdTranslator(model, max_length=4)
        >>> translator.ids([[5, 3]], [2])["ids"].shape
        TensorShape([1, 4])

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 6.1.
    """

    def __init__(self, model, strategy="greedy", max_length=64, max_source_length=1024):
        super().__init__()
        check_lengths(model, max_length, max_source_length=max_source_length)
        positions = getattr(model, "max_source_length", None)
        if positions is not None:
            max_source_length = min(max_source_length, positions)
        # The weights alone: to track the model would export its optimizer too.
        self.weights = [weight.value for weight in model.weights]
        self._decode = lambda ids: generate(model, ids, strategy, max_length)
        self._max_source_length = max_source_length

    @tf.function(
        autograph=False,
        input_signature=[
            tf.TensorSpec([None, None], tf.int32, "source_ids"),
            tf.TensorSpec([None], tf.int32, "source_lengths"),
        ],
    )
    def ids(self, source_ids, source_lengths):
        """Ids [B, S], of which `source_lengths` [B] are real -> `ids` [B, L], `score` [B].

        What lies beyond a row's length is ignored, whatever a server padded it with. A row of
        length 0 is answered by padding, with score 0.
        """
        source_ids = source_ids[:, : self._max_source_length]
        ids, score = self._decode(tf.where(real(source_ids, source_lengths), source_ids, 0))
        is_empty = source_lengths < 1
        return {
            "ids": tf.where(is_empty[:, None], 0, ids),
            "score": tf.where(is_empty, 0.0, score),
        }
