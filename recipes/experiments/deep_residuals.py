"""Which residuals train 24 layers without warm-up?"""

import numpy as np

from keras_attn import layers, residuals, text

from ..text.data import read_text
from .experiment import Experiment
from .small_models import attention, language_model

NUM_LAYERS = 24
STEPS, BATCH, LENGTH = 400, 16, 64


def run(make_residual):
    """Return the mean loss of the last fifty steps, in bits per character."""
    _, splits = read_text()
    tokenizer = text.Characters.train([splits["train"][:200_000]])
    ids = np.array(tokenizer.encode_as_lists([splits["train"][:2_000_000]])[0])
    starts = np.random.default_rng(0).integers(0, len(ids) - LENGTH - 1, (STEPS, BATCH))
    windows = ids[starts[..., None] + np.arange(LENGTH + 1)]

    def block(index):
        feed_forward = layers.FeedForward(256)
        return layers.TransformerBlock(attention(), feed_forward, residual=make_residual())

    model = language_model(tokenizer.vocabulary_size, block, NUM_LAYERS, 64, "sinusoidal")
    losses = [float(model.train_on_batch(rows[:, :-1], rows[:, 1:])) for rows in windows]
    return {"bits per character": _last(losses, 50), "after 100 steps": _last(losses[:100], 20)}


def _last(losses, count):
    return float(np.mean(losses[-count:]) / np.log(2))


EXPERIMENT = Experiment(
    "deep_residuals",
    __doc__.strip(),
    f"A causal character model of {NUM_LAYERS} layers of width 64, {STEPS} steps of {BATCH} texts "
    f"of {LENGTH} characters of the source of Python's library, Adam at 0.001 from the first step. "
    "Bits per character in training: the mean of the last fifty steps, and of the twenty steps "
    "before the hundredth.",
    {
        "`PostNorm()`": residuals.PostNorm,
        "`PreNorm()`": residuals.PreNorm,
        "`DeepNorm(24)`": lambda: residuals.DeepNorm(NUM_LAYERS),
        "`ReZero()`": residuals.ReZero,
        "`LayerScale(1e-5)`": lambda: residuals.LayerScale(1e-5),
        "`SandwichNorm()`": residuals.SandwichNorm,
    },
    run,
)

if __name__ == "__main__":
    EXPERIMENT.main()
