"""Training PatchTST beside transformers, from equal weights: losses, and the time of a step.

    python -m recipes.benchmarks.series_training --oracle PYTHON

PYTHON is that of an environment with torch and transformers.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np

from ..common.machine import versions
from .card import Card, card_parser, execute
from .harness import environment

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = f"{__package__}.contenders.series_training"
PEER = f"{PROGRAM}_torch"
OURS, THEIRS = "keras_attn", "transformers"
CHANNELS, LENGTH, HORIZON, BATCH, STEPS = 7, 336, 96, 8, 20
OPTIONS = {
    "num_input_channels": CHANNELS,
    "context_length": LENGTH,
    "prediction_length": HORIZON,
    "patch_length": 16,
    "patch_stride": 8,
    "d_model": 128,
    "num_attention_heads": 16,
    "ffn_dim": 256,
    "num_hidden_layers": 3,
    "pooling_type": None,
}
TOLERANCE = 1e-4
METHOD = (
    "A random `PatchTSTForPrediction` of the sizes of Nie et al. (2023): 7 channels, 336 values, "
    "patches of 16 with stride 8, 96 next values, batch normalisation, no dropout. Both read the "
    "same folder and train on the same batches of {batch} noisy waves, float32, one thread, by SGD "
    "at 0.02 with a momentum of 0.9: Adam of the two libraries adds epsilon at other places. The "
    "sinusoids of the positions are frozen, which transformers forgets when it reads a folder. "
    "**largest difference** is that of the losses of {steps} steps, over the loss; {tolerance:.0e} "
    "is allowed. A step's time is the median processor time of the later {timed}; the processes "
    "run in turn; repetitions: {repetitions}."
)


def main():
    parser = card_parser("series_training", __doc__.splitlines()[0], repetitions=3)
    parser.add_argument("--oracle", required=True, metavar="PYTHON", help="with transformers")
    arguments = parser.parse_args()
    facts = {"batch": BATCH, "steps": STEPS, "timed": STEPS // 2, "tolerance": TOLERANCE}
    method = METHOD.format(repetitions=arguments.repetitions, **facts)
    card = Card(arguments.name, "Training PatchTST", method)
    card.content["command"] = f"python -m {__package__}.series_training --oracle PYTHON"
    card.content["versions"] = versions("keras_attn", "tensorflow", "keras")
    with tempfile.TemporaryDirectory() as folder:
        np.savez(pathlib.Path(folder, "batches.npz"), **batches())
        run([arguments.oracle, "-m", PEER, "make", folder, json.dumps(OPTIONS)])
        commands = {
            OURS: [sys.executable, "-m", PROGRAM, folder],
            THEIRS: [arguments.oracle, "-m", PEER, "train", folder],
        }
        samples = {who: [] for who in commands}
        for _ in range(arguments.repetitions):
            for who, command in commands.items():
                samples[who].append(json.loads(run(command).splitlines()[-1]))
    ours, theirs = (np.array(samples[who][0]["losses"]) for who in (OURS, THEIRS))
    largest = float(np.max(np.abs(ours - theirs) / theirs))
    times = {who: statistics.median(x["seconds"] for x in each) for who, each in samples.items()}
    ratios = [a["seconds"] / b["seconds"] for a, b in zip(*samples.values(), strict=True)]
    rows = [
        "| trained by | first loss | last loss | CPU s of a step |",
        "| --- | --: | --: | --: |",
    ]
    for who, losses in ((OURS, ours), (THEIRS, theirs)):
        rows.append(f"| {who} | {losses[0]:.6f} | {losses[-1]:.6f} | {times[who]:.3f} |")
    card.content |= {"samples": samples, "largest_difference": largest}
    card.headline(
        *rows,
        "",
        f"- The largest difference of the losses of {STEPS} steps is {largest:.1e}.",
        f"- A step of keras_attn takes {statistics.median(ratios):.2f} times that of transformers.",
    )
    print(card.write(arguments.out))
    return not largest <= TOLERANCE


def batches():
    """Return the past and the future values of each step's series."""
    random = np.random.default_rng(0)
    times = np.arange(LENGTH + HORIZON)[:, None]
    shape = STEPS, BATCH, 1, CHANNELS
    values = np.sin(2 * np.pi * (times / random.uniform(12, 48, shape) + random.random(shape)))
    values = values + 0.3 * random.standard_normal(values.shape) + random.normal(0, 5, shape)
    values = values.astype("float32")
    return {"past": values[:, :, :LENGTH], "future": values[:, :, LENGTH:]}


def run(command):
    """Return the output of a command, which must succeed."""
    done = subprocess.run(
        list(map(str, command)),
        check=False,
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise ValueError(f"A process failed: {done.stderr[-900:]}")
    return done.stdout


if __name__ == "__main__":
    execute(main)
