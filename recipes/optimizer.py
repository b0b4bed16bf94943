"""The optimizer that recipes share, and whether a step is compiled."""

import keras

from keras_attn import optimizers

# On JAX what is not compiled runs step by step; on TensorFlow a graph is as fast as what XLA makes of
# it, and is made in a tenth of the time for each new shape.
COMPILED = keras.backend.backend() == "jax"


def adam(options):
    """Adam whose learning rate warms up, then falls along a cosine to a twentieth of its peak.

    Args:
        options: with `learning_rate`, the peak, and `steps`, `warmup_steps` and `clip_norm`.
    """
    schedule = keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=0.0,
        warmup_target=options.learning_rate,
        warmup_steps=options.warmup_steps,
        decay_steps=max(1, options.steps - options.warmup_steps),
        alpha=0.05,
    )
    return optimizers.Adam(schedule, beta_2=0.98, global_clipnorm=options.clip_norm)
