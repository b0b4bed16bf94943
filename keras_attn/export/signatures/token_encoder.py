"""Signatures of masked language models: ids to features and logits."""

import keras
import tensorflow as tf

from keras_attn.export.checks import length_mask

TOKEN_SPECS = [
    tf.TensorSpec([None, None], tf.int32, "token_ids"),
    tf.TensorSpec([None], tf.int32, "lengths"),
]


class TokenEncoder(tf.Module):
    """Masked language model as graph functions.

        features = Encoder(ids),   logits = Head(features)

    Features and logits are float32 under every dtype policy.

    Args:
        model: a `MaskedLanguageModel`, with a layer named "encoder".

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
        # Only the weights: tracking the model would export its optimizer too.
        self.weights = [weight.value for weight in model.weights]
        features = keras.Model(model.input, model.encoder.output)
        self._features = lambda ids: features({"token_ids": ids, "segment_ids": None})
        self._logits = lambda ids: model({"token_ids": ids}, training=False)

    @tf.function(autograph=False, input_signature=TOKEN_SPECS)
    def encode(self, token_ids, lengths):
        """Map ids [B, T] with `lengths` [B] to `features` [B, T, D].

        Ids beyond a row's length are padding: they are not read, and their features are undefined.
        """
        return {"features": tf.cast(self._features(_masked(token_ids, lengths)), tf.float32)}

    @tf.function(autograph=False, input_signature=TOKEN_SPECS)
    def logits(self, token_ids, lengths):
        """Map ids [B, T] with `lengths` [B] to `logits` [B, T, V]."""
        return {"logits": self._logits(_masked(token_ids, lengths))}


def _masked(token_ids, lengths):
    return tf.where(length_mask(token_ids, lengths), token_ids, 0)
