"""Preparation of a made-up corpus by `recipes.prepare`: time and memory of each process."""

import json
import pathlib
import random
import subprocess
import sys
import sysconfig
import tempfile
import time

from ..common.machine import versions
from .card import card_parser, execute, new_card, positive, sentence
from .requirements import check

FILES = 8
METHOD = (
    "A corpus of {megabytes} MB in {files} files: documents of 20 to 200 lines of the source of "
    "Python's standard library, drawn at random, every twentieth the repeat of another one; every "
    "second file has JSON lines, the others paragraphs between blank lines. `recipes.prepare` with "
    "{processes} processes trains a tokenizer of at most 32,000 subwords ({tokenizer}) on 10 MB "
    "and writes shards. Memory is the resident memory of a process at its highest; the rate is "
    "that of a process's own processor time, which other work on the machine does not change much."
)
# Runs the recipe, and says what its processes took.
RUN = """
import json, os, resource, sys
from recipes.prepare.light import without_keras
without_keras()
from recipes.prepare.options import RecipeOptions
from recipes.prepare.plan import make_plan
from recipes.common.machine import peak_memory
from recipes.prepare.steps import prepare
options = RecipeOptions.parse(sys.argv[1:])
plan = make_plan(options)
pool = prepare(plan, options, log=lambda line: print(line, file=sys.stderr, flush=True))
main = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({
    "memory": [*pool.memory.values()],
    "seconds": [*pool.seconds.values()],
    "main_memory": peak_memory(),
    "main_seconds": main.ru_utime + main.ru_stime,
}))
"""


def main():
    parser = card_parser("preparation", __doc__)
    parser.add_argument("--megabytes", type=positive, default=4000, help="default: %(default)s")
    parser.add_argument("--processes", type=positive, default=2, help="default: %(default)s")
    parser.add_argument("--tokenizer", default="unigram", choices=("bpe", "unigram"))
    parser.add_argument("--folder", help="for the corpus and its shards (default: a temporary one)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        folder = pathlib.Path(folder)
        size = make_corpus(folder / "texts", arguments.megabytes * 1_000_000)
        processes = prepare(folder, arguments)
        report = json.loads((folder / "out" / "report.json").read_text())
    card = new_card(arguments, "Preparation of a large corpus", METHOD, files=FILES)
    card.content["versions"] = versions("keras_attn", "numpy", "sentencepiece")
    card.content["processes"], card.content["report"] = processes, report
    card.headline(*headline(size / 1e6, processes, report))
    print(card.write(arguments.out))
    return 0


def make_corpus(folder, size):
    """Write a corpus of so many bytes, and return the exact number."""
    stdlib = pathlib.Path(sysconfig.get_path("stdlib"))
    texts = [path.read_text("utf-8", "ignore") for path in sorted(stdlib.glob("*.py"))]
    lines = [line for text in texts for line in text.split("\n") if line.strip()]
    generator = random.Random(0)
    folder.mkdir()
    written, early = 0, []
    for number in range(FILES):
        is_json = number % 2 == 0
        with open(folder / f"{number}.{'jsonl' if is_json else 'txt'}", "w") as file:
            while written < size * (number + 1) / FILES:
                text = "\n".join(generator.choices(lines, k=generator.randint(20, 200)))
                if len(early) < 1000:
                    early.append(text)
                elif generator.random() < 0.05:
                    text = generator.choice(early)
                text = json.dumps({"text": text}) + "\n" if is_json else f"{text}\n\n"
                written += file.write(text)
    return sum(path.stat().st_size for path in folder.iterdir())


def prepare(folder, arguments):
    options = {
        "data-dir": folder / "texts",
        "out": folder / "out",
        "documents": "blank_lines",
        "processes": arguments.processes,
        "tokenizer": arguments.tokenizer,
    }
    switches = [f"--{name}={value}" for name, value in options.items()]
    run = RUN.replace("recipes.", f"{__package__.removesuffix('.benchmarks')}.")
    started = time.monotonic()
    command = [sys.executable, "-c", run, *switches]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise ValueError(f"recipes.prepare ended with exit code {done.returncode}.")
    return {**json.loads(done.stdout), "wall_seconds": time.monotonic() - started}


def headline(megabytes, processes, report):
    """Yield the lines of the card."""
    rate = megabytes / sum(processes["seconds"])
    memory = max(processes["main_memory"], *processes["memory"])
    tokens = sum(split["tokens"] for split in report["splits"].values())
    statement = f"Both passes: **{rate:.1f} MB of text a second of one core**"
    yield f"- {sentence(check('passes', statement, rate, at_least=4))}"
    statement = f"Largest memory of any process: **{memory:.0f} MB**"
    yield f"- {sentence(check('memory', statement, memory, at_most=500))}"
    for seconds, size in zip(processes["seconds"], processes["memory"], strict=True):
        yield f"- A process of the passes: {seconds:.1f} s of processor time, {size:.0f} MB."
    yield (
        "- The first process, with the training of the tokenizer: "
        f"{processes['main_seconds']:.1f} s of processor time, {processes['main_memory']:.0f} MB."
    )
    yield (
        f"- {processes['wall_seconds']:.0f} s in all, beside other work: {report['documents']:,} "
        f"documents, {report['repeats']:,} of them repeats, {tokens:,} tokens."
    )


if __name__ == "__main__":
    execute(main)
