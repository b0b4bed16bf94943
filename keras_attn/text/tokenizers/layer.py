"""Tokenizer as a layer of a Keras model that reads strings."""

import base64
import dataclasses

import keras

from keras_attn import registry
from keras_attn.compat.keras_masks import set_keras_mask
from keras_attn.ops.checks import check_sizes
from keras_attn.text.tokenizers.loading import from_bytes
from keras_attn.text.tokenizers.operations import tf


@registry.register
class TokenizerLayer(keras.layers.Layer):
    """Turn strings into padded ids, with Keras's mask of the tokens that are no padding.

    Calling a tokenizer makes this layer. Its configuration holds the tokenizer's file.
    """

    def __init__(self, tokenizer, max_length=None, **kwargs):
        if tf is None:
            raise ValueError(
                "A tokenizer is a layer of a model on TensorFlow only: set "
                "KERAS_BACKEND=tensorflow, or give the model ids from `encode`. "
                f"Received: backend={keras.backend.backend()!r}."
            )
        super().__init__(**kwargs)
        if max_length is not None:
            check_sizes(max_length=max_length)
        self.supports_jit = False  # XLA has no strings
        # TensorFlow follows the attribute, so Keras's export finds the tables of the tokenizer.
        self.tokenizer, self.max_length = tokenizer, max_length

    def call(self, text):
        if text.shape.rank == 2:
            text = tf.squeeze(text, axis=1)
        ids, lengths = self.tokenizer.encode(text, self.max_length)
        # Layers cannot read rows without columns, which "" has alone and without special tokens.
        missing = tf.maximum(1 - tf.shape(ids)[-1], 0)
        ids = tf.pad(ids, [[0, 0], [0, missing]], constant_values=self.tokenizer.fill_id)
        set_keras_mask(ids, tf.sequence_mask(lengths, tf.shape(ids)[-1]))
        return ids

    def compute_output_spec(self, text):
        dtype = keras.backend.standardize_dtype(text.dtype)
        is_column = len(text.shape) == 2 and text.shape[1] == 1
        if dtype != "string" or not (len(text.shape) == 1 or is_column):
            raise ValueError(
                "`text` must be strings of shape (batch,) or (batch, 1), as of "
                '`keras.Input((), dtype="string")`. '
                f"Received: shape={tuple(text.shape)}, dtype={dtype}."
            )
        return keras.KerasTensor((text.shape[0], None), "int32")

    def get_config(self):
        content, changes = self.tokenizer.to_bytes(), self.tokenizer.changed_attributes()
        if "template" in changes:
            changes["template"] = dataclasses.asdict(changes["template"])
        file = {"base64": base64.b64encode(content).decode(), **changes}
        return {**super().get_config(), "tokenizer": file, "max_length": self.max_length}

    @classmethod
    def from_config(cls, config):
        changes = dict(config["tokenizer"])
        tokenizer = from_bytes(base64.b64decode(changes.pop("base64")), changes)
        return cls(**{**config, "tokenizer": tokenizer})
