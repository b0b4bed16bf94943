"""Texts understood by the kind of training before: from one side or both, with next sentences."""

import functools
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np

from keras_attn import layers, losses, models

from ..fine_tune.options import RecipeOptions
from ..fine_tune.training import FineTuneRun
from ..masked_language_model.batches import mask_tokens
from ..text.corpus import encode_lines, train_tokenizer
from ..text.data import read_text
from ..text.tokens import FIRST_ID
from .experiment import Experiment

STEPS, BATCH, WIDTH = 2000, 32, 64
PART = WIDTH // 2 - 1  # tokens of each of two parts, which an end token follows
VOCABULARY = 2000
DIVISIONS = 3  # of the examples of a task into those of training, validation and test
TASKS = {"package of a docstring": "classification", "word of a kind": "answers"}


def run(pretrain):
    """Return the scores of two tasks after the training that `pretrain` does."""
    first = np.random.randint(2**16)
    tokenizer, ids = corpus()
    with tempfile.TemporaryDirectory() as folder:
        pretrain(ids, tokenizer).save(Path(folder, "model.keras"))
        tokenizer.save(Path(folder, "tokenizer.model"))
        return {
            name: float(np.mean([_fine_tuned(folder, task, first + n) for n in range(DIVISIONS)]))
            for name, task in TASKS.items()
        }


@functools.cache
def corpus():
    """Return a tokenizer of the source of Python's library, and the source's ids (N,)."""
    train = read_text().splits()["train"]
    tokenizer = train_tokenizer("bpe", train, VOCABULARY)
    return tokenizer, np.concatenate([ids for ids, _ in encode_lines(tokenizer, train)])


def untrained(ids, tokenizer):
    """Return the model with its initial weights."""
    return _model(tokenizer, "dense")


def left_to_right(ids, tokenizer):
    """Return a causal model that was trained to predict each token from those before it."""
    rows, _ = rows_of_two_parts(ids, tokenizer, share_of_others=0.0)
    model = _model(tokenizer, "causal")
    _fit(model, rows[:, :-1], rows[:, 1:])
    return model


def masked(ids, tokenizer):
    """Return a model that was trained to predict masked tokens from both sides."""
    rows, _ = rows_of_two_parts(ids, tokenizer, share_of_others=0.0)
    model = _model(tokenizer, "dense")
    _fit(model, *_masked(rows, tokenizer))
    return model


def masked_and_next(ids, tokenizer):
    """Return a model that also learned whether a row's second part follows the first one."""
    rows, follows = rows_of_two_parts(ids, tokenizer, share_of_others=0.5)
    model = _model(tokenizer, "dense")
    pooled = layers.Pool("mean")(model.encoder_output)
    logits = keras.layers.Dense(1, name="follows")(pooled)
    both = keras.Model(model.input, {"tokens": model.output, "follows": logits})
    tokens, targets = _masked(rows, tokenizer)
    _fit(both, tokens, {"tokens": targets, "follows": follows[:, None].astype("float32")})
    return model


def _model(tokenizer, pattern):
    return models.bert(
        tokenizer.vocabulary_size + 1,  # the last id is that of the mask
        num_layers=2,
        num_heads=4,
        hidden_dim=128,
        intermediate_dim=512,
        dropout=0.0,
        max_length=WIDTH,
        pattern=pattern,
    )


def rows_of_two_parts(ids, tokenizer, share_of_others):
    """Return rows (N, 64) of two parts, and whether the second part follows the first, bool (N,).

    Otherwise it is from anywhere in the text.
    """
    random, count = np.random.default_rng(np.random.randint(2**31)), STEPS * BATCH
    first, others = random.integers(0, len(ids) - 2 * PART, (2, count))
    follows = random.random(count) >= share_of_others
    second = np.where(follows, first + PART, others)
    end = np.full((count, 1), tokenizer.eos_id)
    parts = [ids[start[:, None] + np.arange(PART)] for start in (first, second)]
    return np.concatenate([parts[0], end, parts[1], end], axis=1).astype("int32"), follows


def _masked(rows, tokenizer):
    random = np.random.default_rng(np.random.randint(2**31))
    return mask_tokens(rows, 0.15, tokenizer.vocabulary_size, FIRST_ID, random)


def _fit(model, tokens, targets):
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, STEPS - 100, alpha=0.05, warmup_target=2e-3, warmup_steps=100
    )
    loss = losses.LabelSmoothedCrossentropy(0.0)
    if isinstance(targets, dict):
        loss = {"tokens": loss, "follows": keras.losses.BinaryCrossentropy(from_logits=True)}
    model.compile(keras.optimizers.Adam(schedule, global_clipnorm=1.0), loss)
    model.fit({"token_ids": tokens}, targets, batch_size=BATCH, shuffle=False, verbose=0)


def _fine_tuned(folder, task, seed):
    """Return the score of a task on its test, after the recipe's training of the saved model."""
    arguments = {
        "--task": task,
        "--model": f"{folder}/model.keras",
        "--out": f"{folder}/{task}-{seed}",
        "--seed": seed,
        "--max-length": WIDTH,
        "--learning-rate": 0.0005,
        "--epochs": 8,
    }
    arguments = [part for pair in arguments.items() for part in pair]
    fine_tuning = FineTuneRun(RecipeOptions.parse(arguments))
    fine_tuning.train()
    return fine_tuning.evaluate()["test"]["value"]


EXPERIMENT = Experiment(
    "pretraining",
    "Which training before makes a model understand texts?",
    "Accuracy on held-out docstrings, whose package is to be named, and the share of right answers "
    "to questions for the word of a kind in a line of Python, as `recipes.fine_tune` trains and "
    "scores them (8 epochs, a learning rate of 0.0005), the mean of three divisions. Before it a "
    f"`bert` of 2 layers of width 128 trained for {STEPS:,} steps on {BATCH} rows of {WIDTH} "
    "subwords of the source of Python's library: to predict each from those on its left, by causal "
    "attention; or masked ones from both sides, without or with the question whether the row's "
    "second half follows the first, as in half of the rows. The source has the docstrings, but not "
    "their labels.",
    {
        "no training before": untrained,
        "left to right": left_to_right,
        "both sides": masked,
        "both sides, next sentence": masked_and_next,
    },
    run,
    digits=3,
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
