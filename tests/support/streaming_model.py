"""A SavedModel that streams: its signatures are those of a language model with a memory.

The next token of a text of n tokens with the last token t is (t + n) mod 128; a character is the
token of its code.
"""

import numpy as np
import tensorflow as tf

VOCABULARY = 128
MAX_POSITIONS = 20_000  # some seconds of steps, even on a quick machine


class Steps(tf.Module):
    def __init__(self):
        super().__init__()
        self.one = tf.Variable(1.0)

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32, "batch_size")])
    def initial_memory(self, batch_size):
        memory = tf.zeros([batch_size, 1, 1, 1]) * self.one
        return {"memory": memory, "memory_length": tf.zeros([batch_size], tf.int32)}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], tf.int32, "token_ids"),
            tf.TensorSpec([None], tf.int32, "lengths"),
            tf.TensorSpec([None, 1, None, 1], tf.float32, "memory"),
            tf.TensorSpec([None], tf.int32, "memory_length"),
        ]
    )
    def step(self, token_ids, lengths, memory, memory_length):
        memory = memory + tf.cast(lengths, tf.float32)[:, None, None, None]
        read = tf.cast(memory[:, 0, 0, 0], tf.int32)
        tf.debugging.assert_less(read, MAX_POSITIONS, "too much was read")
        following = (token_ids + read[:, None]) % VOCABULARY
        logits = tf.one_hot(following, VOCABULARY, on_value=9.0) * self.one
        return {"logits": logits, "memory": memory, "memory_length": memory_length + lengths}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def tokenize(self, text):
        ids = tf.strings.unicode_decode(text, "UTF-8")
        return {"token_ids": ids.to_tensor(), "lengths": tf.cast(ids.row_lengths(), tf.int32)}

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32, "token_ids")])
    def detokenize(self, token_ids):
        rows = tf.RaggedTensor.from_tensor(token_ids, padding=0)
        return {"text": tf.strings.unicode_encode(rows, "UTF-8")}


def export(path):
    """Write the model."""
    module = Steps()
    names = ("initial_memory", "step", "tokenize", "detokenize")
    tf.saved_model.save(module, str(path), {name: getattr(module, name) for name in names})


def continued(prompt, count):
    """Return the tokens that follow a list of tokens."""
    text = list(prompt)
    for _ in range(count):
        text.append(int((text[-1] + len(text)) % VOCABULARY))
    return text[len(prompt) :]


LOG_PROBABILITY = 9 - np.log(np.exp(9) + VOCABULARY - 1)
