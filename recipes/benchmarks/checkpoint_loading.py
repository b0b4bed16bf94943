"""Loading a folder of Hugging Face, beside transformers: time and peak memory.

    python -m recipes.benchmarks.checkpoint_loading --oracle PYTHON

PYTHON is that of an environment with torch and transformers.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from ..common.machine import versions
from . import requirements
from .card import Card, card_parser, execute, sentence
from .harness import environment

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = f"{__package__}.contenders.checkpoint_loading"
PEER = f"{PROGRAM}_torch"
OURS, THEIRS = "keras_attn", "transformers"
MOST_MEMORY = 1.5  # times the weights
METHOD = (
    "Random checkpoints of the base sizes of BERT, GPT-2 and T5 in safetensors, loaded in float32 "
    "in a fresh process, {repetitions} times in turn, the files in the page cache. Imports are "
    "left out; what a library does at its first call is not. transformers maps the pages of a "
    "float32 file into memory and reads them at the first answer. So what a user waits for is "
    "timed too: loading and the outputs of a row of eight tokens, without a graph. Peak memory is "
    "that of loading beyond the imports, over the bytes of the weights in float32."
)


def main():
    parser = card_parser("checkpoint_loading", __doc__.splitlines()[0], repetitions=5)
    parser.add_argument("--oracle", required=True, metavar="PYTHON", help="with transformers")
    arguments = parser.parse_args()
    method = METHOD.format(repetitions=arguments.repetitions)
    card = Card(arguments.name, "Loading a checkpoint", method)
    card.content["versions"] = versions("keras_attn", "tensorflow", "keras")
    rows = [
        "| checkpoint | loaded by | s | CPU s | with an answer s | CPU s | peak over weights |",
        "| --- | --- | --: | --: | --: | --: | --: |",
    ]
    checks, card.content["samples"] = [], {}
    with tempfile.TemporaryDirectory() as folder:
        run([arguments.oracle, "-m", PEER, "make", folder])
        for path in sorted(pathlib.Path(folder).glob("*/*")):
            name = f"{path.parent.name}, {path.name}"
            samples = measure(path, arguments.oracle, arguments.repetitions)
            card.content["samples"][name] = samples
            rows += table_rows(name, samples)
            checks += compare(name, samples)
    card.headline(*rows, "", *(f"- {sentence(check)}" for check in checks))
    print(card.write(arguments.out))


def measure(path, oracle, repetitions):
    """Return the samples of each contender for a folder."""
    commands = {
        OURS: [sys.executable, "-m", PROGRAM, path],
        THEIRS: [oracle, "-m", PEER, "load", path],
    }
    samples = {who: [] for who in commands}
    for turn in range(repetitions + 1):
        for who, command in commands.items():
            sample = json.loads(run(command).splitlines()[-1])
            if turn:  # the first one fills the page cache
                samples[who].append(sample)
    return samples


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


def median(samples, key):
    return statistics.median(sample[key] for sample in samples)


def with_answer(samples, key):
    """Return the median time of loading and the first answer."""
    return statistics.median(sample[key] + sample["answer"][key] for sample in samples)


def over_weights(samples, who):
    """Return the median of the peak memory over the bytes of the weights."""
    return median(samples[who], "megabytes") / samples[THEIRS][0]["weight_megabytes"]


def table_rows(name, samples):
    """Return the rows of the table of a checkpoint."""
    rows = []
    for who, each in samples.items():
        keys = ("seconds", "cpu_seconds")
        times = [time(each, key) for time in (median, with_answer) for key in keys]
        cells = [name, who, *(f"{time:.2f}" for time in times)]
        cells += [f"{over_weights(samples, who):.2f}"]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def compare(name, samples):
    """Return the requirements of a checkpoint: processor time and memory."""
    loading, waiting = (
        time(samples[OURS], "cpu_seconds") / time(samples[THEIRS], "cpu_seconds")
        for time in (median, with_answer)
    )
    memory = over_weights(samples, OURS)
    return [
        requirements.check(
            OURS, f"**{name}**: {loading:.1f} times the processor time of {THEIRS}", loading
        ),
        requirements.check(
            OURS,
            f"**{name}**: {waiting:.2f} times the processor time of {THEIRS} with the first answer",
            waiting,
            at_most=1.0,
        ),
        requirements.check(
            OURS,
            f"**{name}**: peak memory of {memory:.2f} times the weights",
            memory,
            at_most=MOST_MEMORY,
        ),
    ]


if __name__ == "__main__":
    execute(main)
