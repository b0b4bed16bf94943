"""Language models of other libraries at the same budget: bits per character of a test."""

import dataclasses
import json
import os
import pathlib
import statistics
import tempfile

import numpy as np

from ..language_model.options import RecipeOptions
from ..text.corpus import Corpus
from ..text.data import read_text
from ..text.segments import StridedWindows, make_segments
from .card import card_parser, execute, missing, new_card, positive, sentence
from .contenders.quality import FILE, SIZES
from .harness import Contender, Worker, announce
from .requirements import check

OURS, TORCH = (f"{__package__}.contenders.{name}" for name in ("quality_ours", "quality_torch"))
CONTENDERS = {
    "keras_attn gpt": (f"{OURS}:gpt", "windows"),
    "Hugging Face GPT-2": (f"{TORCH}:hugging_face", "windows"),
    "x-transformers": (f"{TORCH}:x_transformers", "windows"),
    "keras_attn transformer_xl": (f"{OURS}:transformer_xl", "segments"),
    "x-transformers XL": (f"{TORCH}:x_transformers_xl", "segments"),
}
PEERS = {
    "keras_attn gpt": ("Hugging Face GPT-2", "x-transformers"),
    "keras_attn transformer_xl": ("x-transformers XL",),
}
AT_MOST = 0.01
METHOD = (
    "Each contender is a process of its own, and trains for {steps:,} steps on {batch_size} "
    "segments of {context} characters: {num_layers} layers of width {hidden_dim} with {num_heads} "
    "heads, a dropout of {dropout}, by Adam with a warm-up of {warmup_steps} steps to "
    "{learning_rate}, a cosine to a twentieth of it and gradients of norm {clip_norm} at most, in "
    "float32. All get the same batches in the same order; initial values and dropout are those of "
    "each library. Models with a memory read the text in its order, and remember {memory} in "
    "training and test. All are scored by the same code, on the same {test_tokens:,} characters of "
    "the test: those without a memory in windows of {context} that move by {stride}, the others in "
    "segments."
)


def main():
    parser = card_parser("quality", __doc__)
    parser.add_argument("--data-dir", help="folder with train.txt, valid.txt and test.txt")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--train-tokens", type=positive, default=4_000_000)
    parser.add_argument("--test-tokens", type=positive, default=200_000)
    parser.add_argument("--num-layers", type=positive, default=6)
    parser.add_argument("--hidden-dim", type=positive, default=256)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--learning-rate", type=float, default=0.001)
    parser.add_argument(
        "--add",
        action="store_true",
        help="keep the results of the card in --out, if there is one, and train what it lacks",
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        options = budget_options(arguments, folder)
        facts = {name: getattr(options, name) for name in (*options.sizes(), "context", "memory")}
        for name in ("steps", "batch_size", "warmup_steps", "clip_norm", "stride"):
            facts[name] = getattr(options, name)
        card = new_card(arguments, "Language models at the same budget", METHOD, **facts)
        corpus = Corpus.load(read_text(arguments.data_dir), options)
        results, skipped = read_results(card, arguments.out) if arguments.add else {}, {}
        fill(card, results, skipped)
        for seed in arguments.seeds:
            names = [name for name in arguments.contenders if seed not in results.get(name, {})]
            if not names:
                continue
            kinds = {CONTENDERS[name][1] for name in names}
            write_budget(folder, kinds, corpus, options, seed, arguments.test_tokens)
            for name in names:
                report = run(name, folder, seed)
                card.content["versions"].update(report.get("versions", {}))
                if report.get("skipped"):
                    skipped[name] = missing(name, report["skipped"])
                else:
                    results.setdefault(name, {})[seed] = report["facts"]
                fill(card, results, skipped)
                if results:
                    card.write(arguments.out)
    print(card.markdown())


def fill(card, results, skipped):
    """Write results into a card, in the order of the contenders and of the seeds."""
    results = {name: dict(sorted(results[name].items())) for name in CONTENDERS if name in results}
    card.content["results"] = results
    card.headline(*table(results), "", *comparisons(results), *skipped.values())


def read_results(card, folder):
    """Return the results of an earlier card of the same name and budget, by contender and seed.

    They are empty if there is no such card.
    """
    path = pathlib.Path(folder, f"{card.name}.json")
    if not path.exists():
        return {}
    earlier = json.loads(path.read_text(encoding="utf-8"))
    if earlier.get("method") != card.content["method"]:
        raise ValueError(f"--add needs a card of the same budget. Received: {path}")
    card.content["versions"].update(earlier["versions"])
    results = earlier["results"].items()
    return {name: {int(seed): facts for seed, facts in of.items()} for name, of in results}


def budget_options(arguments, out):
    """Return the options of `recipes.language_model` that the arguments stand for."""
    names = ("data_dir", "train_tokens", "num_layers", "hidden_dim", "dropout", "learning_rate")
    shared = {name: getattr(arguments, name) for name in names}
    intermediate_dim = 4 * arguments.hidden_dim
    return RecipeOptions(**shared, intermediate_dim=intermediate_dim, stride=32, out=out).resolve()


def write_budget(folder, kinds, corpus, options, seed, test_tokens):
    """Write what the contenders of a seed read: sizes, schedule and batches of both kinds."""
    ids, test = corpus.ids["train"], corpus.ids["test"].part(0, test_tokens)
    sizes = {"vocabulary_size": corpus.tokens.vocabulary_size, **options.sizes()}
    entries = {
        "sizes": {**sizes, "context": options.context, "memory": options.memory},
        **{n: getattr(options, n) for n in ("dropout", "learning_rate", "clip_norm")},
        "warmup_steps": options.warmup_steps,
        "characters_per_token": corpus.characters_per_token("test"),
    }
    with open(os.path.join(folder, SIZES), "w", encoding="utf-8") as file:
        json.dump(entries, file)
    options = dataclasses.replace(options, seed=seed)
    for kind in kinds:
        in_order = kind == "segments"
        tests = make_segments(test, options)
        if not in_order:
            tests = StridedWindows(test, options.context, options.stride, options.batch_size)
        arrays = {
            **stacked(make_segments(ids, options, options.steps, in_order)),
            **{f"test_{name}": array for name, array in stacked(tests).items()},
        }
        np.savez(os.path.join(folder, FILE.format(kind=kind, seed=seed)), **arrays)


def stacked(data):
    """Return the first epoch of some batches as three arrays."""
    batches = [data.batch(0, index) for index in range(len(data))]
    resets = [inputs.get("reset", np.ones(1)) for inputs, _ in batches]
    if any(np.ptp(reset) for reset in resets):
        raise ValueError("A peer empties the memory of all rows at once; the text resets some.")
    return {
        "tokens": np.stack([inputs["token_ids"] for inputs, _ in batches]),
        "targets": np.stack([targets for _, targets in batches]),
        "resets": np.array([bool(reset[0]) for reset in resets]),
    }


def run(name, folder, seed):
    """Return the report of a contender's process."""
    target, _ = CONTENDERS[name]
    worker = Worker(Contender(f"{name}, seed {seed}", target, {"folder": folder, "seed": seed}))
    worker.stop()
    announce(worker, print)
    return worker.report


def table(results):
    """Return the Markdown lines of a dict of contender to seed to facts."""
    lines = [
        "| contender | bits per character | spread | of each seed | parameters | training s |",
        "| --- | --: | --: | --- | --: | --: |",
    ]
    for name, seeds in results.items():
        bits = [facts["bits_per_character"] for facts in seeds.values()]
        spread = f"{statistics.stdev(bits):.3f}" if len(bits) > 1 else ""
        each = ", ".join(f"{value:.3f}" for value in bits)
        seconds = statistics.median(facts["training_seconds"] for facts in seeds.values())
        parameters = next(iter(seeds.values()))["parameters"]
        mean = statistics.mean(bits)
        lines.append(
            f"| {name} | {mean:.3f} | {spread} | {each} | {parameters:,} | {seconds:.0f} |"
        )
    return lines


def comparisons(results):
    """Return a sentence for each of ours and its peer: the mean difference over common seeds."""
    lines = []
    for name, peers in PEERS.items():
        for peer in peers:
            common = sorted(set(results.get(name, ())) & set(results.get(peer, ())))
            if common:
                ours, theirs = (
                    statistics.mean(results[who][seed]["bits_per_character"] for seed in common)
                    for who in (name, peer)
                )
                difference = ours - theirs
                statement = f"**{name}** reads {difference:+.3f} bits per character beside {peer}"
                lines.append(f"- {sentence(check(name, statement, difference, at_most=AT_MOST))}")
    return lines


if __name__ == "__main__":
    execute(main)
