"""Training of 24 layers without warm-up, by the residual."""

import sys

import keras
import numpy as np

from keras_attn import layers, residuals

from .characters import attention, characters, language_model, windows
from .experiment import Experiment

NUM_LAYERS = 24
STEPS, BATCH, LENGTH = 400, 16, 64
WARM_UP, RATE = STEPS // 2, 1e-3


def run(case):
    """Return the mean training loss of two parts of the training, in bits per character.

    A case is (make_residual, learning_rate).
    """
    make_residual, learning_rate = case
    data = characters()
    rows = windows(data.train, LENGTH + 1, STEPS * BATCH)

    def block(index):
        feed_forward = layers.FeedForward(256)
        return layers.TransformerBlock(attention(), feed_forward, residual=make_residual())

    sizes = data.vocabulary_size, block, NUM_LAYERS, 64
    model = language_model(*sizes, "sinusoidal", learning_rate)
    losses = [_fit(model, part) / np.log(2) for part in np.split(rows, 8)]
    return {"steps 51 to 100": losses[1], "steps 351 to 400": losses[-1]}


def _fit(model, rows):
    history = model.fit(rows[:, :-1], rows[:, 1:], batch_size=BATCH, epochs=1, verbose=0).history
    return float(history["loss"][0])


def warm_up():
    """Return a rate that grows evenly from 0 to RATE, and then stays: a decay upwards."""
    return keras.optimizers.schedules.PolynomialDecay(0.0, WARM_UP, RATE)


EXPERIMENT = Experiment(
    "deep_residuals",
    "Which residuals train 24 layers, and does a warm-up help `post_norm`?",
    f"A causal character model of {NUM_LAYERS} layers of width 64, {STEPS} steps of {BATCH} texts "
    f"of {LENGTH} characters of the source of Python's library, Adam at {RATE} from the first "
    "step. Bits per character in training. `deep_norm` is `DeepNorm(24)`, `layer_scale` is "
    f"`LayerScale(1e-5)`. With a warm-up the rate grows evenly in the first {WARM_UP} steps.",
    {
        "post_norm": (residuals.PostNorm, RATE),
        "pre_norm": (residuals.PreNorm, RATE),
        "deep_norm": (lambda: residuals.DeepNorm(NUM_LAYERS), RATE),
        "re_zero": (residuals.ReZero, RATE),
        "layer_scale": (lambda: residuals.LayerScale(1e-5), RATE),
        "sandwich_norm": (residuals.SandwichNorm, RATE),
        "post_norm, warm-up": (residuals.PostNorm, warm_up()),
    },
    run,
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
