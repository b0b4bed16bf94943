"""Which positions stay good beyond the length of training?"""

import numpy as np

from keras_attn import layers, patterns, scores, text

from ..text.data import read_text
from .experiment import Experiment
from .small_models import attention, language_model

TRAINED = 64
LENGTHS = (64, 128, 256, 512)
SCORED = 32
STEPS, BATCH = 700, 32
ROWS = 256


def run(value):
    """Return the bits per character of the last `SCORED` characters of texts of each length."""
    position, make_arguments = value
    _, splits = read_text()
    tokenizer = text.Characters.train([splits["train"][:200_000]])
    train = np.array(tokenizer.encode_as_lists([splits["train"][:2_000_000]])[0])
    valid = np.array(tokenizer.encode_as_lists([splits["valid"]])[0])

    def block(index):
        layer = attention(**make_arguments())
        return layers.TransformerBlock(layer, layers.FeedForward(256), residual="pre_norm")

    model = language_model(tokenizer.vocabulary_size, block, 3, 64, position)
    windows = _windows(train, TRAINED + 1, STEPS * BATCH)
    model.fit(windows[:, :-1], windows[:, 1:], batch_size=BATCH, epochs=1, verbose=0)
    # All lengths are scored on the same characters.
    longest = _windows(valid, max(LENGTHS) + 1, ROWS)
    return {f"{n} characters": _bits(model, longest[:, -n - 1 :]) for n in LENGTHS}


def _windows(ids, length, count):
    starts = np.random.default_rng(0).integers(0, len(ids) - length, count)
    return ids[starts[:, None] + np.arange(length)]


def _bits(model, windows):
    logits = model.predict(windows[:, :-1], batch_size=16, verbose=0)[:, -SCORED:]
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_sum = np.log(np.exp(shifted).sum(axis=-1))
    chosen = np.take_along_axis(shifted, windows[:, -SCORED:, None], axis=-1)[..., 0]
    return float((log_sum - chosen).mean() / np.log(2))


EXPERIMENT = Experiment(
    "lengths",
    __doc__.strip(),
    "Bits per character of the last 32 characters of texts of 64 to 512 characters, by a causal "
    "model of 3 layers of width 64 that trained 700 steps on 32 texts of 64 characters of the "
    "source of Python's library. All lengths score the same characters.",
    {
        "sinusoids": ("sinusoidal", dict),
        "`DotProduct() + ALiBi()`": (
            None,
            lambda: {"score": scores.DotProduct() + scores.ALiBi()},
        ),
        "`DotProduct(scaled=False) + T5Bias()`": (
            None,
            lambda: {"score": scores.DotProduct(scaled=False) + scores.T5Bias()},
        ),
        "rotary": (None, lambda: {"position": "rotary"}),
        "rotary with `Local(64)`": (
            None,
            lambda: {"position": "rotary", "pattern": patterns.Local(TRAINED)},
        ),
    },
    run,
)

if __name__ == "__main__":
    EXPERIMENT.main()
