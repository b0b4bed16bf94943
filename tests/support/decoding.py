"""Greedy decoding with caches beside whole passes."""

import numpy as np
from keras import ops

from keras_attn.generation import generate


def check_greedy(model, prompts, max_length):
    """Check that each token is the choice of a pass over all real tokens before it."""
    ids, _ = generate(model, prompts, max_length=max_length, eos_id=-1)
    for row, prompt in zip(np.asarray(ids), prompts, strict=True):
        text = [token for token in prompt if token]
        for token in row:
            logits = model({"token_ids": np.array([text])})[0, -1]
            assert int(ops.argmax(logits)) == token
            text.append(token)
