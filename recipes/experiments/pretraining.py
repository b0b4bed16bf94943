"""Scores of fine-tuned models by their pre-training: left to right, masked, next sentence."""

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
PART_LENGTH = WIDTH // 2 - 1  # tokens of each of two parts, which an end token follows
VOCABULARY = 2000
NUM_SPLITS = 3  # of the examples of a task into those of training, validation and test
TASKS = {"docstrings: accuracy": "classification", "answers: exact match": "answers"}


def run(pretrain):
    """Return the scores of two tasks after a pre-training, a function of ids and a tokenizer."""
    first_seed = np.random.randint(2**16)
    tokenizer, ids = corpus()
    with tempfile.TemporaryDirectory() as folder:
        pretrain(ids, tokenizer).save(Path(folder, "model.keras"))
        tokenizer.save(Path(folder, "tokenizer.model"))
        seeds = range(first_seed, first_seed + NUM_SPLITS)
        return {
            name: float(np.mean([_fine_tuned(folder, task, seed) for seed in seeds]))
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
    rows, _ = sentence_pair_rows(ids, tokenizer, random_share=0.0)
    model = _model(tokenizer, "causal")
    _fit(model, rows[:, :-1], rows[:, 1:])
    return model


def left_to_right_few_targets(ids, tokenizer):
    """Return a causal model trained to predict as small a share of the tokens as `masked`."""
    rows, _ = sentence_pair_rows(ids, tokenizer, random_share=0.0)
    model = _model(tokenizer, "causal")
    _, targets = _mask_rows(rows, tokenizer)
    _fit(model, rows[:, :-1], targets[:, 1:])
    return model


def masked(ids, tokenizer):
    """Return a model that was trained to predict masked tokens from both sides."""
    rows, _ = sentence_pair_rows(ids, tokenizer, random_share=0.0)
    model = _model(tokenizer, "dense")
    _fit(model, *_mask_rows(rows, tokenizer))
    return model


def masked_and_next(ids, tokenizer):
    """Return a model that also learned whether a row's second part follows the first one."""
    rows, follows = sentence_pair_rows(ids, tokenizer, random_share=0.5)
    model = _model(tokenizer, "dense")
    pooled = layers.Pool("mean")(model.encoder_output)
    logits = keras.layers.Dense(1, name="follows")(pooled)
    both = models.Part(model.input, {"tokens": model.output, "follows": logits})
    tokens, targets = _mask_rows(rows, tokenizer)
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


def sentence_pair_rows(ids, tokenizer, random_share):
    """Return rows (N, WIDTH) of two parts, and whether the second follows the first, bool (N,).

    Otherwise it is from anywhere in the text.
    """
    generator, count = np.random.default_rng(np.random.randint(2**31)), STEPS * BATCH
    starts, random_starts = generator.integers(0, len(ids) - 2 * PART_LENGTH, (2, count))
    follows = generator.random(count) >= random_share
    second_starts = np.where(follows, starts + PART_LENGTH, random_starts)
    end = np.full((count, 1), tokenizer.eos_id)
    parts = [ids[x[:, None] + np.arange(PART_LENGTH)] for x in (starts, second_starts)]
    return np.concatenate([parts[0], end, parts[1], end], axis=1).astype("int32"), follows


def _mask_rows(rows, tokenizer):
    generator = np.random.default_rng(np.random.randint(2**31))
    return mask_tokens(rows, 0.15, tokenizer.vocabulary_size, FIRST_ID, generator)


def _fit(model, tokens, targets):
    warmup = max(1, STEPS // 20)
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, STEPS - warmup, alpha=0.05, warmup_target=2e-3, warmup_steps=warmup
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
    "Which pre-training objective helps fine-tuning most?",
    f"A `bert` of 2 layers of width 128 trains {STEPS:,} steps on {BATCH} rows of {WIDTH} subwords "
    "of the source of Python's library. `left to right` predicts each subword from those before, "
    "by causal attention; `both sides` predicts masked ones, a share of 0.15; with `few targets` "
    "as large a share is predicted from the left; `next sentence` also "
    "predicts whether the row's second half follows the first, as in half of the rows. Then "
    "`recipes.fine_tune` trains it for 8 epochs at a rate of 0.0005, pooling the mean of the "
    "tokens, to name the package of a docstring, or to find the word of a kind in a line of code. "
    f"Scores are the mean of {NUM_SPLITS} splits into training and test. The source has the "
    "docstrings, but not their labels.",
    {
        "none": untrained,
        "left to right": left_to_right,
        "left to right, few targets": left_to_right_few_targets,
        "both sides": masked,
        "both sides, next sentence": masked_and_next,
    },
    run,
    digits=3,
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
