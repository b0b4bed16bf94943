"""Signatures of masked language models: ids to features and logits."""

import keras
import tensorflow as tf

from keras_attn.export.signatures.halting import halting_of_ids
from keras_attn.export.signatures.model_functions import ModelFunctions, of_ids


class TokenEncoder(ModelFunctions):
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
        super().__init__(model)
        features = keras.Model(model.input, model.encoder.output)
        absent, read = dict.fromkeys(model.input), self.reader(model)
        self._features = lambda *ids: features({**absent, "token_ids": read(*ids)})
        self._logits = lambda *ids: model({"token_ids": read(*ids)})
        halting = halting_of_ids(model, read)
        if halting is not None:
            self.halting = of_ids()(halting)

    @property
    def signatures(self):
        own = {"encode": self.encode, "logits": self.logits, "serving_default": self.logits}
        return {**own, **self.halting_signatures}

    @of_ids()
    def encode(self, token_ids, lengths):
        """Map ids [B, T] with `lengths` [B] to `features` [B, T, D].

        Ids beyond a row's length are padding: they are not read, and their features are undefined.
        """
        return {"features": tf.cast(self._features(token_ids, lengths), tf.float32)}

    @of_ids()
    def logits(self, token_ids, lengths):
        """Map ids [B, T] with `lengths` [B] to `logits` [B, T, V]."""
        return {"logits": tf.cast(self._logits(token_ids, lengths), tf.float32)}
