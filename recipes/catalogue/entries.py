"""Entries of the catalogue, read from docstrings, and the sections that hold them."""

import dataclasses
import doctest
import functools
import importlib
import inspect
import itertools
import json
import operator
import re
from pathlib import Path

import keras_attn

SUPPORT = Path(__file__).with_name("support.json")
ON_TORCH = Path(__file__).with_name("torch.json")  # of tests/torch_backend/run.py
# Title, package, and values of other packages that belong to the section.
SECTIONS = (
    ("Scores", "scores", ("layers.DifferentialAttention",)),
    ("Patterns", "patterns", ("layers.GlobalAttention",)),
    ("Positions", "positions", ()),
    ("Norms", "norms", ()),
    ("Residuals", "residuals", ("layers.ParallelBlock",)),
    ("Feed-forward", "feed_forward", ()),
    ("Depth", "depth", ()),
    ("Memory", "memory", ()),
    ("Losses", "losses", ("layers.AdaptiveSoftmax",)),
    ("Models", "models", ()),
    ("Generation", "generation", ()),
    ("Testing", "testing", ()),
)
# Their entries have no place in a model: neither a picture nor results of a tiny one.
OUTSIDE_MODELS = ("generation.", "testing.")
# Public names that are no values: base classes, classes that builders fill, and helpers.
NOT_VALUES = {
    *("patterns.Pattern", "patterns.block_raster_order", "positions.Position"),
    *("positions.RotaryScaling", "depth.Halting"),
    *("memory.Memory", "norms.Norm", "scores.Bias", "scores.KernelScore"),
    *("residuals.Residual", "scores.Score", "scores.ScoreLayer", "feed_forward.PositionMixer"),
    *("models.CausalLanguageModel", "models.Classifier", "models.EncoderDecoder"),
    "models.EncoderThenDecoder",
    "models.Forecaster",
    *("models.ImageTokens", "models.MaskedLanguageModel", "models.SequenceModel"),
    *(
        "models.Part",
        "models.PatchForecaster",
        "models.TokenForecaster",
        "models.TrajectoryModel",
        "models.create",
        "models.presets",
    ),
    *("generation.allow_texts", "testing.Defect", "testing.Report"),
}
HEADING = re.compile(
    r"(?m)^(Args|Attributes|Call arguments(?: and returns)?|Returns|Raises|Example"
    r"|Differs from the paper|Reference):"
)
# All that a docstring says of an argument that another function has.
_SAME = re.compile(r"as `([\w.]+)`\.")
_COST = re.compile(r"^(Cost:|Time|Memory)|\bO\(")


@dataclasses.dataclass(frozen=True)
class Entry:
    """A value's docstring in parts, each empty where there is none.

    Attributes:
        name: such as `patterns.Local`.
        names: its names as a string argument, such as `causal`.
        summary, formula, cost, use, reference: str.
        code: str. The example as a program.
        table: dict of a model's choices by axis.
        arguments: tuple of a model's arguments, each (name, default, meaning).
        support: dict of the results in `support.json`, and that in `torch.json`.
    """

    name: str
    names: tuple = ()
    summary: str = ""
    formula: str = ""
    cost: str = ""
    use: str = ""
    code: str = ""
    reference: str = ""
    table: dict = dataclasses.field(default_factory=dict)
    arguments: tuple = ()
    support: dict = dataclasses.field(default_factory=dict)


@functools.cache
def sections():
    """Return a list of (title, the package's docstring, entries), one for each section."""
    results = [json.loads(file.read_text(encoding="utf-8")) for file in (SUPPORT, ON_TORCH)]
    sections_read = []
    for title, package, more in SECTIONS:
        module = importlib.import_module(f"keras_attn.{package}")
        public = [f"{package}.{name}" for name in module.__all__ if name != "get"]
        names = [name for name in public if name not in NOT_VALUES and callable(_value(name))]
        entries = [_entry(name, _joined(name, results)) for name in (*names, *more)]
        sections_read.append((title, module.__doc__.strip(), entries))
    return sections_read


def _joined(name, results):
    """Return what all results say of a value."""
    return {key: fact for part in results for key, fact in part.get(name, {}).items()}


def _value(name):
    package, attribute = name.split(".")
    return getattr(importlib.import_module(f"keras_attn.{package}"), attribute)


def _entry(name, support):
    value = _value(name)
    description, *rest = HEADING.split(inspect.getdoc(value))
    parts = dict(zip(rest[::2], rest[1::2], strict=True))
    summary, *paragraphs = description.strip().split("\n\n")
    formula = list(itertools.takewhile(lambda p: p.startswith("    "), paragraphs))
    text = [p for p in paragraphs[len(formula) :] if not p.startswith(("    ", "- ", "|"))]
    return Entry(
        name=name,
        names=_names(name, value),
        summary=_one_line(summary),
        formula="\n\n".join(inspect.cleandoc(p) for p in formula),
        cost=_cost(text),
        use=_one_line(next((p for p in text if p.startswith("Use it for ")), "")),
        code=_program(parts.get("Example", "")),
        reference=_one_line(parts.get("Reference", "")),
        table=_table(next((p for p in paragraphs if p.startswith("|")), "")),
        arguments=_arguments(value) if name.startswith("models.") else (),
        support=support,
    )


def _names(name, value):
    names = getattr(importlib.import_module(f"keras_attn.{name.split('.')[0]}"), "NAMES", {})
    classes = {k: v if inspect.isclass(v) else type(v()) for k, v in names.items()}
    return tuple(k for k, v in classes.items() if v is value)


def _cost(paragraphs):
    """Return the sentences on cost, the first with a small letter."""
    lines = [re.split(r"(?<=\.)\s+(?=[A-Z])", _one_line(paragraph)) for paragraph in paragraphs]
    sentences = [s.removeprefix("Cost: ") for line in lines for s in line if _COST.search(s)]
    cost = " ".join(sentences)
    return cost[:1].lower() + cost[1:]


def _one_line(text):
    return " ".join(text.split())


def _program(example):
    """Return the code of a doctest, with short results as comments."""
    lines = []
    for part in doctest.DocTestParser().get_examples(inspect.cleandoc(example)):
        source, want = part.source.rstrip(), part.want.strip()
        last = source.splitlines()[-1]
        if want and "\n" not in want and len(last) + len(want) < 95:
            source += ("\n" if "#" in last else "  ") + f"# {want}"
        lines.append(source)
    return "\n".join(lines)


def _table(text):
    if not text:
        return {}
    axes, _, values = ([c.strip() for c in row.strip("| ").split("|")] for row in text.split("\n"))
    return dict(zip(axes, values, strict=True))


def _arguments(build):
    """Return (name, default, meaning) of each argument of a builder, as Markdown."""
    parameters = inspect.signature(build).parameters
    return tuple(
        (name, _default(parameters[name].default), _spelled_out(name, meaning).replace("|", "\\|"))
        for name, meaning in _meanings(build).items()
    )


def _meanings(value):
    """Return what a docstring says of each argument, by its name."""
    parts = HEADING.split(inspect.getdoc(value))
    text = parts[parts.index("Args") + 1] if "Args" in parts else ""
    items = (
        _one_line(item).partition(": ") for item in re.split(r"\n(?=\w)", inspect.cleandoc(text))
    )
    return {name: meaning for names, _, meaning in items for name in names.split(", ") if name}


def _spelled_out(name, meaning):
    """Return, for "as `gpt`.", what the docstring of `gpt` says of the argument."""
    same = _SAME.fullmatch(meaning)
    if same is None:
        return meaning
    path = same[1].removeprefix("keras_attn.")
    module = keras_attn.models if path == same[1] else keras_attn
    other = _meanings(operator.attrgetter(path)(module)).get(name)
    return meaning if other is None else _spelled_out(name, other)


def _default(value):
    if value is inspect.Parameter.empty:
        return ""
    return f"`{getattr(value, '__name__', None) or repr(value)}`"
