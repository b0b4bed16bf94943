"""Speculative decoding by a trained language model and drafts that are distilled from it."""

import argparse
import hashlib
import itertools
import os
import re
import statistics

from ..common.machine import restrict_cores
from . import requirements
from .card import add_cores_argument, card_parser, execute, new_card, positive
from .contenders import speculation
from .harness import Contender, compare, measure

MODULE = speculation.__name__
MODES = {"graph": False, "XLA": True}  # `jit_compile` of `generate`
STRATEGIES = "greedy", "sample"
METHOD = (
    "Tokens a second of `generation.generate`, which continues pieces of the validation text of "
    "the run `{run}`, at least {prompts} in a turn, of {prompt_tokens} tokens at most, by "
    "{new_tokens} tokens each: by the run's model alone, the target, and by "
    "`Speculative` with drafts of LAYERSxWIDTH that were distilled from it in {steps} steps on the "
    "run's training text. **graph** is `generate` as it is, **XLA** has `jit_compile=True`; "
    "`sample` has temperature 1. Greedy tokens with and without a draft are compared. **a** is the "
    "acceptance rate of [Leviathan et al., 2022](https://arxiv.org/abs/2211.17192), the mean of "
    "sum min(p, q) over the written text; **c** is the time of the draft alone over that of the "
    "target alone. **accepted** is the mean of a row and round, of G proposed tokens, and its "
    "share of them; what goes beyond the last token counts as refused. **round** is the time of a "
    "round over that of a step of the target, prompts included, and beside it G c + 1, as the "
    "paper counts it; **paper** is its speed-up, (1 - a^(G+1)) / ((1 - a)(G c + 1)). Each "
    "contender is a process of its own and all are asked in turn, {repetitions} times."
)
LIMITS = (
    "It cannot pay where c >= a, where a round costs G + 1 steps or more, whatever is accepted, "
    "and where few proposals are accepted. In the paper a step on G + 1 tokens takes as long as a "
    "step on one. It takes longer on a processor that one token keeps busy, and the more rows a "
    "batch has, the busier it is. A batch also lasts until its last row has ended, and the draft "
    "takes G + 1 steps a round here."
)
COLUMNS = {
    "of target": lambda row: _number(row, "speedup"),
    "accepted": lambda row: _accepted(row["facts"]),
    "a": lambda row: _number(row["facts"], "acceptance"),
    "c": lambda row: _number(row, "draft_cost"),
    "round": lambda row: f"{row['round']:.2f}, {row['paper_round']:.2f}" if "round" in row else "-",
    "paper": lambda row: _number(row, "predicted"),
}


def _number(values, name):
    return f"{values[name]:.2f}" if name in values else "-"


def _accepted(facts):
    if "tokens" not in facts:
        return "-"
    accepted = facts["written"] - 1  # the target adds a token of its own to each round
    return f"{accepted:.2f} of {facts['tokens']}, {accepted / facts['tokens']:.0%}"


def main():
    parser = card_parser("speculation", __doc__, repetitions=5)
    parser.add_argument("run", help="directory of a finished run of recipes.language_model")
    what = "sizes of drafts (default: a third of the layers, a quarter of the width)"
    parser.add_argument("--drafts", nargs="+", type=draft_size, metavar="LAYERSxWIDTH", help=what)
    parser.add_argument("--steps", type=positive, default=2000, help="of the training of a draft")
    parser.add_argument("--work", help="folder that keeps trained drafts (default: RUN/drafts)")
    parser.add_argument("--new-tokens", type=positive, default=128)
    parser.add_argument("--batches", nargs="+", type=positive, default=(1, 4))
    what = "tokens that a draft proposes in a round"
    parser.add_argument("--tokens", nargs="+", type=positive, default=(2, 4, 8), help=what)
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=STRATEGIES)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=[*MODES])
    add_cores_argument(parser)
    arguments = parser.parse_args()
    for name in (speculation.MODEL, speculation.TOKENS, "settings.json"):
        if not os.path.exists(os.path.join(arguments.run, name)):
            print(f"{arguments.run} holds no finished run of recipes.language_model: no {name}")
            return 2
    options = speculation.read_options(arguments.run)
    if not 1 < arguments.new_tokens < options.context:
        raise ValueError(
            "--new-tokens must be from 2 on and less than the run's context, which also holds the "
            f"prompt. Received: --new-tokens {arguments.new_tokens}, context {options.context}."
        )
    restrict_cores(arguments.cores)
    drafts = trained_drafts(arguments, options)
    sizes = {"prompts": speculation.PROMPTS, "prompt_tokens": speculation.PROMPT_TOKENS}
    card = new_card(arguments, "Speculative decoding", METHOD, "tokens", COLUMNS, **sizes)
    cases = itertools.product(arguments.batches, arguments.strategies, arguments.modes)
    verdicts = []
    for batch, strategy, mode in cases:
        group = f"batch {batch}, {strategy}, {mode}"
        print(group, flush=True)
        chosen = contenders(arguments, drafts, batch, strategy, mode)
        rows, skipped = measure(chosen, arguments.repetitions)
        different = differences(rows, target_name(mode)) if strategy == "greedy" else None
        add_costs(rows, target_name(mode), arguments.new_tokens)
        verdict = fastest(rows)
        verdicts += [(group, verdict)] if verdict else []
        card.add(group, rows, skipped, [different, verdict, *reasons(rows)])
        card.headline(*headline(verdicts))
        card.write(arguments.out)
    print(card.markdown())
    groups = card.content["groups"]
    return int(any(c["met"] is False for group in groups for c in group["comparisons"]))


def draft_size(text):
    """Read the layers and the width of a draft, or raise an error for argparse."""
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"LAYERSxWIDTH is expected. Received: {text}")
    return tuple(map(int, match.groups()))


def trained_drafts(arguments, options):
    """Return the files of the drafts by their sizes; train those that are missing."""
    default = max(1, round(options.num_layers / 3)), max(1, options.hidden_dim // 4)
    work = arguments.work or os.path.join(arguments.run, "drafts")
    with open(os.path.join(arguments.run, speculation.MODEL), "rb") as file:
        target = hashlib.file_digest(file, "sha256").hexdigest()[:12]
    paths = {}
    for layers, width in arguments.drafts or [default]:
        name = f"{layers}x{width}"
        paths[name] = os.path.join(work, f"{target}-{name}-{arguments.steps}.keras")
        if not os.path.exists(paths[name]):
            print(f"Training of the draft {name}", flush=True)
            speculation.train_draft(arguments.run, paths[name], layers, width, arguments.steps)
    return paths


def target_name(mode):
    return f"target, {mode}"


def draft_name(size):
    return f"draft {size} alone"


def contenders(arguments, drafts, batch, strategy, mode):
    """Return the target in all modes, and the drafts, alone and with the target, in one of them."""
    options = {"run": arguments.run, "batch": batch, "strategy": strategy}
    options |= {"new_tokens": arguments.new_tokens}
    target = {"path": os.path.join(arguments.run, speculation.MODEL)}
    chosen = [
        Contender(
            target_name(each), f"{MODULE}:alone", options | target | {"jit_compile": MODES[each]}
        )
        for each in arguments.modes
    ]
    options |= {"jit_compile": MODES[mode]}
    for size, path in drafts.items():
        draft = options | {"path": path}
        chosen.append(Contender(draft_name(size), f"{MODULE}:alone", draft))
        chosen += [
            Contender(
                f"{size}, {tokens} tokens", f"{MODULE}:speculative", draft | {"tokens": tokens}
            )
            for tokens in arguments.tokens
        ]
    return chosen


def differences(rows, target):
    """Compare the greedy tokens of the target with those of the target and a draft."""
    alone, ways = requirements.find(rows, target), speculative_rows(rows)
    if alone is None or not ways:
        return None
    expected, count, total = alone["facts"]["ids"], 0, 0
    for row in ways:
        total += len(expected)
        for index, pair in enumerate(zip(row["facts"]["ids"], expected, strict=True)):
            if pair[0] != pair[1]:
                count += 1
                place = next(place for place, (a, b) in enumerate(zip(*pair)) if a != b)
                print(f"{row['name']}: continuation {index} differs from token {place} on")
    statement = f"{count} of {total} continuations with a draft differ from those of {target}"
    return requirements.check(target, statement, count, at_most=0)


def speculative_rows(rows):
    return [row for row in rows if "tokens" in row["facts"]]


def add_costs(rows, target, new_tokens):
    """Add to the rows with a draft what it costs and gains; drop the ids of all rows.

    Costs are relative to the target in the same mode, medians of the ratios within a turn.
    """
    alone = requirements.find(rows, target)
    for row in rows:
        del row["facts"]["ids"]
        if alone is None:
            continue
        row["speedup"] = time_ratio(alone, row)
        draft = requirements.find(rows, draft_name(row["name"].partition(",")[0]))
        if "tokens" not in row["facts"] or draft is None:
            continue
        facts, cost = row["facts"], time_ratio(draft, alone)
        row["draft_cost"], row["paper_round"] = cost, facts["tokens"] * cost + 1
        row["round"] = facts["calls"] * new_tokens / facts["rounds"] / row["speedup"]
        row["predicted"] = predicted_speedup(facts["acceptance"], facts["tokens"], cost)


def time_ratio(row, other):
    """Return the time of a row over that of another, the median over turns."""
    turns = zip(row["seconds"], other["seconds"], strict=True)
    return statistics.median(seconds / others for seconds, others in turns)


def predicted_speedup(acceptance, tokens, cost):
    """Return the speed-up of theorem 3.8 of the paper.

    (1 - a^(G + 1)) / (1 - a) is computed as a sum, which has a value at a = 1 too.
    """
    return sum(acceptance**n for n in range(tokens + 1)) / (tokens * cost + 1)


def fastest(rows):
    """Compare the fastest way with a draft with the fastest one without, whatever its mode."""
    ways = speculative_rows(rows)
    if not ways:
        return None
    best = min(ways, key=lambda row: row["median_seconds"])
    return compare(rows, best["name"], [target_name(mode) for mode in MODES])


def reasons(rows):
    """Say of each draft that does not pay, beside the target in the same mode, why."""
    return [
        requirements.check(row["name"], f"**{row['name']}** does not pay: {why}", row["speedup"])
        for row in speculative_rows(rows)
        if (why := reason(row))
    ]


def reason(row):
    """Return why a row with a draft is slower than the target; None if it is not."""
    if "round" not in row or row["speedup"] > 1:
        return None
    facts, cost = row["facts"], row["draft_cost"]
    most = facts["tokens"] + 1
    if row["round"] >= most:
        return (
            f"a round costs {row['round']:.2f} steps of the target and writes at most {most} "
            "tokens, so no share of accepted ones is enough"
        )
    if row["predicted"] <= 1:
        return (
            f"{facts['acceptance']:.2f} accepted is too little for {facts['tokens']} proposals of "
            f"a draft whose step costs {cost:.2f} of the target's, as the paper predicts"
        )
    return (
        f"a round costs {row['round']:.2f} steps of the target, where the paper counts "
        f"{row['paper_round']:.2f}, and writes {facts['written']:.2f} tokens a row"
    )


def headline(verdicts):
    """Return the lines that say where it is faster."""
    faster = [verdict for _, verdict in verdicts if verdict["ratio"] > 1]
    lines = [
        f"- {group}: {verdict['name']} at {verdict['ratio']:.2f} of the rate of {verdict['peer']}"
        for group, verdict in verdicts
    ]
    summary = (
        "The best draft beside the fastest way without one is faster in "
        f"{len(faster)} of {len(verdicts)} cases:"
    )
    return [summary, "", *lines, "", LIMITS]


if __name__ == "__main__":
    execute(main)
