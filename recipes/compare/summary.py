"""The results of an axis: means and spreads over the seeds, as a table, sentences and a picture."""

import math
import statistics
from typing import NamedTuple

import numpy as np

from ..common.plots import new_axes, save

LABEL = "bits per character, validation"


class Summary(NamedTuple):
    """The results of a value over its seeds.

    Attributes:
        curves: dict of seed to bits per character after each epoch.
        parameters: int.
        seconds_per_step: float, the median over the seeds.
    """

    curves: dict
    parameters: int
    seconds_per_step: float

    @classmethod
    def of(cls, results):
        """Return the summary of a dict of seed to result."""
        first, *_ = results.values()
        return cls(
            {seed: result["bits_per_character"] for seed, result in results.items()},
            first["parameters"],
            statistics.median(result["seconds_per_step"] for result in results.values()),
        )

    @property
    def last(self):
        """Bits per character at the end, of each seed."""
        return [curve[-1] for curve in self.curves.values()]

    @property
    def mean(self):
        return float(np.mean(self.last))

    @property
    def has_learned(self):
        """True if no seed diverged, to a result that is no number."""
        return math.isfinite(self.mean)

    @property
    def spread(self):
        """Sample standard deviation over the seeds; None of one seed."""
        return float(np.std(self.last, ddof=1)) if len(self.last) > 1 else None

    def as_dict(self):
        """Return what a card shows."""
        curves = {str(s): [round(x, 4) for x in curve] for s, curve in self.curves.items()}
        return {
            "bits_per_character": curves,
            "parameters": self.parameters,
            "seconds_per_step": round(self.seconds_per_step, 4),
        }


def table(axis, summaries):
    """Return a Markdown table, the best value first."""
    lines = [
        f"| {axis.replace('_', ' ')} | bits per character | spread | of each seed | parameters "
        "| seconds per step |",
        "| --- | --: | --: | --- | --: | --: |",
    ]
    for name, summary in ranked(summaries).items():
        spread = "" if summary.spread is None else f"{summary.spread:.3f}"
        each = ", ".join(f"{bits:.3f}" for bits in summary.last)
        lines.append(
            f"| `{name}` | {summary.mean:.3f} | {spread} | {each} | {summary.parameters:,} "
            f"| {summary.seconds_per_step:.3f} |"
        )
    return lines


def sentences(summaries):
    """Return which values differ from the first one by more than the spread."""
    reference, *others = summaries
    start = summaries[reference]
    ranks = ranked({name: summaries[name] for name in others})
    if not start.has_learned:
        groups = {"Diverged": [], "Not diverged": []}
        for name, summary in ranks.items():
            groups["Not diverged" if summary.has_learned else "Diverged"].append(f"`{name}`")
        return [f"`{reference}` diverged, so no value is compared with it.", *_listed(groups)]
    if start.spread is None or not others:
        return ["One seed, or one value, shows no spread."]
    spreads = [x.spread for x in summaries.values() if x.spread is not None and x.has_learned]
    usual = statistics.median(spreads)
    groups = {"Better": [], "Worse": [], "Not told apart": [], "Diverged": []}
    for name, summary in ranks.items():
        groups[_group(summary, start, usual)].append(f"`{name}`")
    return [
        f"A difference from `{reference}` counts if it exceeds twice the largest of three spreads: "
        f"that of `{reference}`, the value's own, and the median of all values, {usual:.3f}.",
        *_listed(groups),
    ]


def _group(summary, start, usual):
    """Return the word for the difference of a value from the first one, which has learned."""
    if not summary.has_learned:
        return "Diverged"
    difference = summary.mean - start.mean
    if abs(difference) <= 2 * max(usual, start.spread, summary.spread or 0.0):
        return "Not told apart"
    return "Better" if difference < 0 else "Worse"


def best(summaries):
    """Return the best value and its mean, as the last line of a comparison shows it."""
    name, summary = next(iter(ranked(summaries).items()))
    if not summary.has_learned:
        return f"all of {len(summaries)} values diverged"
    return f"best {name} of {len(summaries)} values, with {summary.mean:.3f} bits per character"


def _listed(groups):
    """Return a list in Markdown of the names in each group that has any, after an empty line."""
    lines = [f"- {group}: {', '.join(names)}." for group, names in groups.items() if names]
    return ["", *lines] if lines else []


def ranked(summaries):
    """Return the summaries, the best first, and those that diverged last."""
    order = sorted(summaries.items(), key=lambda item: (not item[1].has_learned, item[1].mean))
    return dict(order)


def draw(path, axis, summaries, tokens):
    """Draw the curves of the means, with a band of the spread, and the results of all seeds.

    `tokens` is the number that each model is trained on.
    """
    from matplotlib import colormaps

    figure, _ = new_axes((10, max(4, 1.2 + 0.28 * len(summaries))))
    figure.clear()
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    names = [*ranked(summaries)]
    palette = colormaps["tab10" if len(names) <= 10 else "tab20"]
    for row, name in enumerate(names):
        summary, color = summaries[name], palette(row % palette.N)
        curves = np.array([*summary.curves.values()])
        mean, epochs = curves.mean(axis=0), curves.shape[1]
        seen = np.arange(1, epochs + 1) * tokens / epochs
        left.plot(seen, mean, ".-", color=color, label=name, linewidth=1)
        if summary.spread is not None:
            spread = curves.std(axis=0, ddof=1)
            left.fill_between(seen, mean - spread, mean + spread, color=color, alpha=0.2)
        right.plot(summary.last, [row] * len(summary.last), "o", color=color, markersize=4)
        right.plot([summary.mean], [row], "|", color=color, markersize=14)
    left.set(xlabel="tokens", ylabel=LABEL, title=axis.replace("_", " "))
    right.set(xlabel="at the end: each seed, and the mean", yticks=range(len(names)))
    right.set_yticklabels(names)
    right.invert_yaxis()
    for part in (left, right):
        part.grid(alpha=0.3)
    save(figure, path)
