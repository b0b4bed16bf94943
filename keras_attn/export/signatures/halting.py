"""The signature `halting` of models whose depth is an `ACT`: steps and remainders of each token."""

import tensorflow as tf

from keras_attn.export.signatures.model_functions import length_mask
from keras_attn.models.model import Model


def halting_function(model):
    """Return the method `halting` of a model with padding and an `ACT`; None for any other."""
    has_halting = isinstance(model, Model) and model.halting_depths and model.pad_id is not None
    return model.halting if has_halting else None


def token_halting(halting, token_ids, lengths, pad_id, name="token_ids"):
    """Return `steps` int32 and `remainders` float32, (B, T), of a model that reads ids alone.

    The `token_ids` beyond `lengths` are padding.
    """
    is_valid = length_mask(token_ids, lengths)
    # One more column: a row of no token has a first one.
    read = tf.pad(token_ids, [[0, 0], [0, 1]], constant_values=pad_id)
    (found,) = halting({name: read}).values()
    return halting_outputs(found, is_valid)


def halting_of_ids(model, read):
    """Return the function of ids and lengths that gives their `token_halting`, or None.

    `read` maps them to the ids that the model reads. A model without an `ACT` has no halting.
    """
    halting = halting_function(model)
    if halting is None:
        return None
    return lambda token_ids, lengths: token_halting(
        halting, read(token_ids, lengths), lengths, model.pad_id
    )


def halting_outputs(halting, is_valid, prefix=""):
    """Return the outputs of a `Halting` of as many positions or more, 0 at tokens that are none."""
    width = tf.shape(is_valid)[1]
    steps, remainders = halting.steps[:, :width], halting.remainder[:, :width]
    return {
        f"{prefix}steps": tf.where(is_valid, steps, 0),
        f"{prefix}remainders": tf.where(is_valid, tf.cast(remainders, tf.float32), 0.0),
    }
