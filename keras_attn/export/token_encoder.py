"""Ids in, features of every token and its logits out."""

import keras
import tensorflow as tf

from keras_attn.export.lengths import real

IDS = [
    tf.TensorSpec([None, None], tf.int32, "token_ids"),
    tf.TensorSpec([None], tf.int32, "lengths"),
]


class TokenEncoder(tf.Module):
    """A masked language model as functions from tensors to tensors.

        features = Encoder(ids),   logits = Head(features)

    Features and logits are float32 whatever the model computes in.

    Args:
        model: a `MaskedLanguageModel`, with a layer named "encoder" below its head.

    Example:
        >>> import keras_attn
        >>> encoder = keras_attn.export.TokenEncoder(keras_attn.models.bert(vocabulary_size=10,
        ...     num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16, max_length=32))
        >>> encoder.logits([[5, 4, 9]], [3])["logits"].shape
        TensorShape([1, 3, 10])

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3.
    """

    def __init__(self, model):
        super().__init__()
        # The weights alone: to track the model would export its optimizer too.
        self.weights = [weight.value for weight in model.weights]
        features = keras.Model(model.input, model.encoder.output)
        self._features = lambda ids: features({"token_ids": ids, "segment_ids": None})
        self._logits = lambda ids: model({"token_ids": ids}, training=False)

    @tf.function(autograph=False, input_signature=IDS)
    def encode(self, token_ids, lengths):
        """Ids [B, T], of which `lengths` [B] are real -> `features` [B, T, D].

        What lies beyond a row's length is not read, whatever a server padded it with, and its
        features mean nothing.
        """
        return {"features": tf.cast(self._features(_real(token_ids, lengths)), tf.float32)}

    @tf.function(autograph=False, input_signature=IDS)
    def logits(self, token_ids, lengths):
        """The same ids -> `logits` [B, T, V]."""
        return {"logits": self._logits(_real(token_ids, lengths))}


def _real(token_ids, lengths):
    return tf.where(real(token_ids, lengths), token_ids, 0)
