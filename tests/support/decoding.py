"""Decoding with caches beside whole passes."""

import numpy as np
from decoding_models import decode_eagerly
from keras import ops

from keras_attn.memory import KVCache


def check_greedy(model, prompts, max_length):
    """Check that each token is the choice of a pass over the real tokens, causal as the model."""
    ids, _ = decode_eagerly(model, prompts, "greedy", max_length, ends=(-1,))
    for row, prompt in zip(ids, prompts, strict=True):
        text = np.append(prompt[prompt != 0], row)
        logits = model({"token_ids": text[None, :-1]})[0, -max_length:]
        np.testing.assert_array_equal(ops.argmax(logits, axis=-1), row)


def check_pieces(layer, x, ends, slots, atol=1e-5):
    """Check that attention to pieces of x, which a cache joins, is attention to all of x."""
    whole, cache, start = layer(x, x), KVCache(slots).initial(layer, len(x)), 0
    for end in ends:
        piece = ops.array(x[:, start:end])
        output, cache = layer(piece, piece, cache=cache)
        np.testing.assert_allclose(output, whole[:, start:end], atol=atol)
        start = end
