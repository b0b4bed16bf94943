"""Greedy decoding with caches beside whole passes."""

import numpy as np
from keras import ops

from keras_attn.generation import generate


def check_greedy(model, prompts, max_length):
    """Check that each token is the choice of a pass over the real tokens, causal as the model."""
    ids, _ = generate(model, prompts, max_length=max_length, eos_id=-1)
    for row, prompt in zip(np.asarray(ids), prompts, strict=True):
        text = np.append(prompt[prompt != 0], row)
        logits = model({"token_ids": text[None, :-1]})[0, -max_length:]
        np.testing.assert_array_equal(ops.argmax(logits, axis=-1), row)
