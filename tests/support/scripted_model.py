"""A model that generates given ids, whatever it reads."""

import types

import numpy as np
import tensorflow as tf

SIZE = 400  # number of logits, enough for the tokenizers of the tests


class ScriptedModel:
    """A model whose row b generates the ids of row b of its script, and then the end token.

    The script may change between two calls. The logits of a token are 9 at the token of the script,
    0 at the others. The cache counts the new tokens, in a slot for each.
    """

    max_length = max_source_length = pad_id = None

    def __init__(self, reads_prompt=False):
        self.reads_prompt = reads_prompt
        self.embedding = types.SimpleNamespace(vocabulary_size=SIZE)
        self._script = tf.Variable([[0]], shape=tf.TensorShape([None, None]), dtype=tf.int32)

    @classmethod
    def of_texts(cls, tokenizer, texts, reads_prompt=False):
        """Return a model that writes the texts, each with an end token."""
        model = cls(reads_prompt)
        model.write(tokenizer, texts)
        return model

    def write(self, tokenizer, texts):
        """Write the texts, each with an end token, from now on."""
        rows = tokenizer.encode_as_lists(texts)
        script = np.full((len(rows), max(map(len, rows)) + 1), tokenizer.eos_id, "int32")
        for scripted, row in zip(script, rows, strict=True):
            scripted[: len(row)] = row
        self._script.assign(script)
        self.embedding.vocabulary_size = tokenizer.vocabulary_size

    def start(self, inputs, max_length, padding_mask=None, whole=True):
        return {}, {"count": tf.zeros((tf.shape(inputs)[0], 1, 0, 1))}

    def step(self, token_ids, constants, cache, positions, last=None, **masks):
        index = tf.minimum(tf.shape(cache["count"])[2], tf.shape(self._script)[1] - 1)
        chosen = tf.gather(self._script, index, axis=1)
        width = 1 if last is not None else tf.shape(token_ids)[1]
        logits = tf.repeat(9.0 * tf.one_hot(chosen, SIZE)[:, None], width, axis=1)
        return logits, {"count": tf.pad(cache["count"], [[0, 0], [0, 0], [0, 1], [0, 0]])}
