"""How many steps a model takes at each position."""

import numpy as np
from keras import ops


def steps_of(act, hidden_states):
    """N of each position, from the states after each step.

        N = min(M, min{n: h^1 + ... + h^n >= 1 - epsilon}),   h^n = sigmoid(w s^n + b)

    Args:
        act: a `keras_attn.depth.ACT` of Graves' variant.
        hidden_states: list of M tensors (B, T, D), as it gives them.

    Returns:
        int array (B, T).
    """
    probabilities = [np.asarray(act.halting_unit(state))[..., 0] for state in hidden_states]
    reached = np.cumsum(probabilities, axis=0)[:-1] >= 1 - act.epsilon  # (M - 1, B, T)
    return act.max_steps - np.sum(reached, axis=0)


def steps_by_position(model, inputs):
    """N of each position of the source and of the target, padding among them.

    Args:
        model: an `EncoderDecoder` whose encoder and decoder are `ACT`.
        inputs: dict of `source_ids` (B, S) and `target_ids` (B, T), the right targets.

    Returns:
        int arrays (B, S) and (B, T).
    """
    source_ids, target_ids = inputs["source_ids"], inputs["target_ids"]
    masks = [ops.not_equal(ids, 0) for ids in (source_ids, target_ids)]
    context, source_states = model.encoder(
        model.embedding(source_ids), padding_mask=masks[0], return_hidden_states=True
    )
    _, target_states = model.decoder(
        model.embedding(target_ids),
        context,
        padding_mask=masks[1],
        context_padding_mask=masks[0],
        return_hidden_states=True,
    )
    return steps_of(model.encoder, source_states), steps_of(model.decoder, target_states)
