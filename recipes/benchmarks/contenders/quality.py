"""Batches of a text, learning rates and the score, shared by the contenders of `quality`."""

import dataclasses
import json
import math
import os
import time

import numpy as np

from ..workload import Task

FILE, SIZES = "{kind}-{seed}.npz", "budget.json"
LAST_RATE = 0.05  # of the peak
BETAS, EPSILON = (0.9, 0.98), 1e-7  # of Adam
PARTS = 10  # of the training, for the curve


@dataclasses.dataclass(frozen=True)
class Budget:
    """Sizes, schedule and the batches of one seed, the same for all contenders.

    Attributes:
        sizes: dict of ints: `vocabulary_size`, `num_layers`, `num_heads`, `hidden_dim`,
            `intermediate_dim`, `context` and `memory`.
        dropout, learning_rate, clip_norm: floats.
        warmup_steps: int.
        characters_per_token: float, of the test.
        seed: int.
        batches: dict of int arrays: `tokens` and `targets` (steps, B, T) to train on, `resets`
            (steps,), true where a memory must be emptied, and `test_tokens`, `test_targets` and
            `test_resets`. A target of 0 is none.
    """

    sizes: dict
    dropout: float
    learning_rate: float
    clip_norm: float
    warmup_steps: int
    characters_per_token: float
    seed: int
    batches: dict

    @classmethod
    def read(cls, folder, kind, seed):
        """Read the budget that `quality` wrote: `windows`, or `segments` in the text's order."""
        with open(os.path.join(folder, SIZES), encoding="utf-8") as file:
            entries = json.load(file)
        with np.load(os.path.join(folder, FILE.format(kind=kind, seed=seed))) as file:
            return cls(**entries, seed=seed, batches=dict(file))

    def rate(self, step):
        """Return the learning rate of a step: a warm-up, then a cosine to a twentieth."""
        if step < self.warmup_steps:
            return self.learning_rate * step / self.warmup_steps
        decay_steps = max(1, len(self.batches["tokens"]) - self.warmup_steps)
        done = min(1.0, (step - self.warmup_steps) / decay_steps)
        share = (1 + math.cos(math.pi * done)) / 2
        return self.learning_rate * (LAST_RATE + (1 - LAST_RATE) * share)


def task(budget, parameters, train, predict):
    """Train and score a contender; return a `Task` that only reports.

    Args:
        budget: a `Budget`.
        parameters: int.
        train: function of tokens, targets (B, T), a bool that empties the memory, and the step. It
            trains one step and returns the loss, nats per token.
        predict: function of tokens and that bool that returns logits, a float array (B, T, V).
    """
    batches, curve, started = budget.batches, [], time.monotonic()
    for part in np.array_split(np.arange(len(batches["tokens"])), PARTS):
        losses = [
            train(batches["tokens"][i], batches["targets"][i], bool(batches["resets"][i]), int(i))
            for i in part
        ]
        if losses:
            curve.append(float(np.mean([float(loss) for loss in losses])) / math.log(2))
    seconds = time.monotonic() - started
    facts = {
        "bits_per_character": score(budget, predict),
        "parameters": int(parameters),
        "training_seconds": round(seconds, 1),
        "curve": [round(bits, 4) for bits in curve],
    }
    return Task(call=lambda: None, facts=facts)


def score(budget, predict):
    """Return the bits per character of the test: each target counts once."""
    batches, bits, count = budget.batches, 0.0, 0
    test = (batches[f"test_{name}"] for name in ("tokens", "targets", "resets"))
    for tokens, targets, reset in zip(*test, strict=True):
        logits = np.asarray(predict(tokens, bool(reset)), "float64")
        logits -= logits.max(axis=-1, keepdims=True)
        chosen = np.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
        nats = np.log(np.exp(logits).sum(axis=-1)) - chosen
        bits += nats[targets > 0].sum() / math.log(2)
        count += int((targets > 0).sum())
    return float(bits / count / budget.characters_per_token)
