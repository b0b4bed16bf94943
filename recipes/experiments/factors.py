"""Bits by the column of a row, for each arrangement of the factors of a sparse pattern."""

import sys
from functools import partial

from keras_attn import layers, losses, models, patterns

from ..common.optimizer import adam
from ..common.options import ScheduleOptions
from .characters import bits_by_position, characters, language_model, train, windows
from .experiment import Experiment

# A text is an image of so many rows and columns; the summary keys are in the last columns.
HEIGHT, WIDTH, SUMMARY = 32, 16, 4
STEPS, ROWS = 4000, 256


def run(make_model):
    """Return the bits per character `by_column` of a model for a number of characters."""
    data = characters()
    model = make_model(data.vocabulary_size)
    schedule = ScheduleOptions(steps=STEPS, warmup_steps=STEPS // 20, learning_rate=0.002)
    model.compile(adam(schedule), losses.LabelSmoothedCrossentropy(0.0))
    length = HEIGHT * WIDTH
    train(model, data.train, length, STEPS, batch_size=1)
    # In the second half of a text every character has much before it.
    return by_column(bits_by_position(model, windows(data.valid, length + 1, ROWS), length // 2))


def sparse_model(vocabulary_size, **arguments):
    """Build a `sparse_transformer`; its learned positions are those of rows and columns."""
    return models.sparse_transformer(
        vocabulary_size,
        num_layers=3,
        num_heads=4,
        hidden_dim=128,
        intermediate_dim=512,
        dropout=0.0,
        image_shape=(HEIGHT, WIDTH, 1),
        remat=False,
        **arguments,
    )


def rotary_model(vocabulary_size, pattern):
    """Build a model of the same sizes with rotary positions and default initial values."""

    def block(index):
        return layers.TransformerBlock(
            layers.MultiHeadAttention(4, 32, pattern=pattern, position="rotary"),
            layers.FeedForward(512),
            residual="pre_norm",
        )

    return language_model(vocabulary_size, block, 3, 128)


def by_column(bits):
    """Return the means of three columns, the others and all, of the bits (n,) of whole rows."""
    columns = bits.reshape(-1, WIDTH).mean(axis=0)
    names = ("first column", "second", "third")
    return {
        **{name: float(column) for name, column in zip(names, columns)},
        "others": float(columns[len(names) :].mean()),
        "all": float(columns.mean()),
    }


EXPERIMENT = Experiment(
    "factors",
    "Where in a row do the factors of a sparse pattern predict badly?",
    "Bits per character of the second half of 256 texts of 512 characters of the source of "
    "Python's library, by the column of the character that predicts the next. A "
    "`sparse_transformer` of 3 layers of width 128 with 4 heads reads them as 32 rows of 16; its "
    "fixed pattern has 4 summary keys in a row. It trains 4,000 steps of Adam on one text of 512 "
    "characters each, at a rate of 0.002 with a warm-up and a cosine. The last three models have "
    "rotary positions in place of learned ones, the default initial values, ReLU and scaled "
    "embeddings; of them `fixed` and `strided` have both factors in every head.",
    {
        **{
            f"{name}, {factors}": partial(sparse_model, summary=summary, factors=factors)
            for name, summary in (("fixed", SUMMARY), ("strided", None))
            for factors in ("merged", "per_head", "interleaved")
        },
        "full": partial(sparse_model, factors="full"),
        "fixed, rotary": partial(rotary_model, pattern=patterns.Fixed(WIDTH, SUMMARY)),
        "strided, rotary": partial(rotary_model, pattern=patterns.Strided(WIDTH)),
        "full, rotary": partial(rotary_model, pattern="causal"),
    },
    run,
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
