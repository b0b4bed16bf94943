"""A training step of a model that `recipes.language_model` builds."""

from .gradient import gradient_task

VOCABULARY_SIZE = 256


def training_step(options):
    """The gradient of half the sum of squared logits by all weights, for one text.

    Args:
        options: list of strings, the recipe's command line.
    """
    import numpy as np
    import tensorflow as tf

    from ...language_model.architectures import build
    from ...language_model.options import RecipeOptions

    options = RecipeOptions.parse(options)
    ids = np.random.default_rng(0).integers(1, VOCABULARY_SIZE, (1, options.context), "int32")
    return gradient_task(build(options, VOCABULARY_SIZE), tf.constant(ids))
