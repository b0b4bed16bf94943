"""Facts that mixtures of experts remember at the active size of a dense network."""

import sys

import numpy as np

from keras_attn import layers

from .characters import attention, language_model
from .experiment import Experiment

NAMES = 64
EPOCHS, BATCH = 94, 256  # 1,504 steps


def run(make_feed_forward):
    """Return the share of random facts (a, b) -> c that a model of one block remembers."""
    pairs = np.stack(np.meshgrid(*[np.arange(1, NAMES + 1)] * 2), axis=-1).reshape(-1, 2)
    third = np.random.default_rng(0).integers(1, NAMES + 1, len(pairs))
    targets = np.stack([np.zeros_like(third), third], axis=1)  # 0 is not learned

    def block(index):
        return layers.TransformerBlock(attention(), make_feed_forward(), residual="pre_norm")

    model = language_model(NAMES + 1, block, 1, 64, position="sinusoidal")
    model.fit(pairs, targets, batch_size=BATCH, epochs=EPOCHS, verbose=0)
    answers = model.predict(pairs, batch_size=1024, verbose=0)[:, 1].argmax(axis=-1)
    return {"remembered": float((answers == third).mean()), "weights": model.count_params()}


EXPERIMENT = Experiment(
    "facts",
    "How many facts do experts remember at the active size of a dense network?",
    "The share of 4,096 random facts (a, b) -> c that a model of one block of width 64 remembers "
    "after 1,504 steps of 256 facts. `dense_64` is `FeedForward(64)`, `experts_8_top_1` has eight "
    "such experts and computes one, `experts_16_top_2` has sixteen of half the width and computes "
    "two: 64 hidden units a position in all three. `dense_512` has the weights of all experts.",
    {
        "dense_64": lambda: layers.FeedForward(64),
        "experts_8_top_1": lambda: layers.MixtureOfExperts(
            layers.FeedForward(64), 8, 1, router="probability"
        ),
        "experts_16_top_2": lambda: layers.MixtureOfExperts(layers.FeedForward(32), 16, 2),
        "dense_512": lambda: layers.FeedForward(512),
    },
    run,
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
