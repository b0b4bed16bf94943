"""Progress of a run as the terminal shows it, and numbers and results as its lines show them."""

import os


def fit_verbosity():
    """Return `verbose` of `fit`: a bar on a terminal, otherwise a line for each epoch."""
    return 1 if os.isatty(1) else 2


def evaluate_verbosity():
    """Return `verbose` of `evaluate`: a bar on a terminal, otherwise nothing."""
    return 1 if os.isatty(1) else 0


def duration(seconds):
    """Return a duration in its usual unit, such as "4.1 minutes"."""
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size or (unit == "minutes" and seconds >= size):
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.2g} seconds" if seconds < 10 else f"{seconds:.0f} seconds"


def byte_size(count):
    """Return a number of bytes in its usual unit, such as "4.9 MB"."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def long_warmup(options, steps):
    """Yield a sentence if the warm-up of a learning rate is longer than the training."""
    warmup = getattr(options, "warmup_steps", None) or 0
    if warmup > steps:
        yield (
            "The warm-up is longer than the training, so the learning rate stays below its peak. "
            f"Received: --warmup-steps {warmup}, and {steps} steps of training."
        )


def result(card):
    """Return the first split's number and metric, and the other splits' numbers."""
    measured = first_result(card)["metric"].replace("_", " ")
    (first, own), *others = card["results"].items()
    parts = [f"{_shown(own)} {measured}" + (f" ({first})" if others else "")]
    return ", ".join([*parts, *(f"{_shown(other)} ({name})" for name, other in others)])


def _shown(result):
    """Return the value of a result; a card has null for one that is no number."""
    return "nan" if result["value"] is None else f"{result['value']:.3f}"


def first_result(card):
    """Return the result of the first split."""
    first, *_ = card["results"].values()
    return first
