"""Optimizer of recipes, and their setting of `jit_compile`."""

import keras

from keras_attn import optimizers

# On JAX an uncompiled model runs operation by operation. On TensorFlow a graph is about as fast as
# XLA's code and takes a tenth of the time to build for each new shape.
JIT_COMPILE = keras.backend.backend() == "jax"


def adam(options):
    """Return Adam with a warm-up, then a cosine down to a twentieth of the peak learning rate.

    Args:
        options: a `ScheduleOptions`.
    """
    schedule = keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=0.0,
        warmup_target=options.learning_rate,
        warmup_steps=options.warmup_steps,
        decay_steps=max(1, options.steps - options.warmup_steps),
        alpha=0.05,
    )
    return optimizers.Adam(schedule, beta_2=0.98, global_clipnorm=options.clip_norm)
