"""A model that generates given ids, whatever it reads."""

import types

import numpy as np
from keras import ops


class ScriptedModel:
    """A model whose row b generates the ids of row b of a script, and then its fill id.

    The logits of a token are 9 at the token of the script, 0 at the others. The cache counts the
    new tokens, in a slot for each.
    """

    max_length = max_source_length = None

    def __init__(self, rows, vocabulary_size, fill_id, pad_id=None, reads_prompt=False):
        self.reads_prompt, self.pad_id = reads_prompt, pad_id
        self.embedding = types.SimpleNamespace(vocabulary_size=vocabulary_size)
        self._script = np.full((len(rows), max(map(len, rows)) + 1), fill_id, "int32")
        for scripted, row in zip(self._script, rows, strict=True):
            scripted[: len(row)] = row

    @classmethod
    def of_texts(cls, tokenizer, texts, **options):
        """Return the model that writes the texts, each with an end token."""
        rows = tokenizer.encode_as_lists(texts)
        sizes = tokenizer.vocabulary_size, tokenizer.eos_id, tokenizer.pad_id
        return cls(rows, *sizes, **options)

    def start(self, inputs, max_length, padding_mask=None, whole=True):
        count = ops.zeros((ops.shape(inputs)[0], 1, 0, 1), "float32")
        return {}, {"count": count}

    def step(self, token_ids, constants, cache, positions, last=None, **masks):
        width = 1 if last is not None else ops.shape(token_ids)[1]
        index = ops.shape(cache["count"])[2]
        script = ops.convert_to_tensor(self._script)
        index = ops.minimum(index, script.shape[1] - 1)
        chosen = ops.take(script, index, axis=1)
        logits = 9.0 * ops.one_hot(chosen, self.embedding.vocabulary_size)
        logits = ops.repeat(ops.expand_dims(logits, 1), width, axis=1)
        count = ops.pad(cache["count"], [[0, 0], [0, 0], [0, 1], [0, 0]])
        return logits, {"count": count}
