"""The pages of the catalogue as Markdown: an index, and a page for each axis."""

import functools
import re

from .entries import OUTSIDE_MODELS, SECTIONS, sections
from .needs import NEEDS

IMAGES = ".github/images/catalogue"
INDEX = """\
# Catalogue

Every value of every axis, every model, and every way to generate. Each page says of its values when
to use them, their formula, their cost, code that runs, and the paper: {pages}.

| I want to | use |
| --- | --- |
{needs}

Each value has its place in a model:

```python
from keras_attn import depth, layers, models, patterns
attention = layers.MultiHeadAttention(
    2, 8, score="scaled_dot", pattern=patterns.Local(16), position="rotary")
block = layers.TransformerBlock(attention, layers.FeedForward(32), residual="pre_norm")
model = models.CausalLanguageModel(layers.TokenEmbedding(100, 16), depth.Stack([block]))
```

`python -m recipes.catalogue` makes these pages from the docstrings. The lines on causality,
caches, exports and backends are results of `tests/support/catalogue_support.py`, which tries a tiny
model with each value; those on torch are of [its tests](../tests/torch_backend/card.md)."""
HEAD = """\
# {title}

{description}

{names}.

Letters: B batch, T query length, S key length, N heads, H head size, D hidden size, F intermediate
size, V vocabulary, M memory length, L layers. [The catalogue](../README.md) has the other axes and
an index by need."""
CAUSAL = {
    "yes": "yes",
    "no": "no",
    "values": "yes, but later inputs can change which earlier ones are read",
}
# Values of other packages leave causality to the pattern, unless an argument changes it.
DECIDING = ("patterns.", "models.", "layers.")
CACHED = {
    "yes": "yes",
    "no": "no",
    "differs": "yes, but a step can read other keys than training does, so outputs differ",
}
PARTS = {
    "greedy": "the whole decoding loop",
    "generate": "the whole decoding loop",
    "step": "a step",
    "encoder": "the encoder",
    "logits": "the logits",
    "classify": "the classes",
    "act": "the actions",
    "forecast": "the forecast",
}


def texts():
    """Return the text of each page by its path in `keras_attn`: that of the index comes first."""
    pages = {"README.md": _index()}
    for (title, description, entries), (_, package, _) in zip(sections(), SECTIONS, strict=True):
        names = ", ".join(_link(entry.name) for entry in entries)
        head = HEAD.format(title=title, description=description, names=names)
        body = [_entry_text(entry) for entry in entries]
        pages[f"{package}/README.md"] = "\n\n".join([head, *body]) + "\n"
    return pages


def _index():
    places = [(title, package) for title, package, _ in SECTIONS]
    pages = ", ".join(f"[{title}]({package}/README.md)" for title, package in places)
    needs = "\n".join(
        f"| {need} | {', '.join(map(_link_from_index, names))} |" for need, names in _needs()
    )
    parts = [INDEX.format(pages=pages, needs=needs)]
    for (title, description, entries), (_, package) in zip(sections(), places, strict=True):
        rows = "\n".join(f"| {_link_from_index(e.name)} | {_use(e)} |" for e in entries)
        parts.append(
            f"## {title}\n\n{description} [More]({package}/README.md).\n\n"
            f"| value | use it for |\n| --- | --- |\n{rows}"
        )
    return "\n\n".join(parts) + "\n"


def _use(entry):
    return entry.use.removeprefix("Use it for ").rstrip(".").replace("|", "\\|")


@functools.cache
def _folder(name):
    """Return the package whose page has an entry, which may be of another package."""
    titles = {e.name: title for title, _, entries in sections() for e in entries}
    return next(package for title, package, _ in SECTIONS if title == titles[name])


def _link(name):
    return f"[`{name}`](#{anchor(name)})"


def _link_from_index(name):
    return f"[`{name}`]({_folder(name)}/README.md#{anchor(name)})"


def anchor(heading):
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def picture_name(name):
    """Return the file name of an entry's picture."""
    return f"{name.replace('.', '_').lower()}.png"


def _needs():
    """Return (need, names) of the index, with those that follow from the results of tests."""
    (models,) = (entries for title, _, entries in sections() if title == "Models")
    ctranslate2 = [e.name for e in models if e.support.get("ctranslate2")]
    onnx = [e.name for e in models if e.support.get("onnx") == "greedy"]
    return (
        *((need, names.split()) for need, names in NEEDS),
        ("export to CTranslate2", ctranslate2),
        ("export the whole decoding loop to ONNX", onnx),
    )


def _entry_text(entry):
    lines = [f"## `{entry.name}`"]
    if not entry.name.startswith(OUTSIDE_MODELS):
        lines.append(f"![{entry.name}](../../{IMAGES}/{picture_name(entry.name)})")
    lines += [f"{entry.summary} {entry.use}", f"```text\n{entry.formula}\n```"]
    facts = [f"- {name}: {fact}" for name, fact in _facts(entry) if fact]
    lines += ["\n".join(facts)] if facts else []
    lines.append(f"```python\n{entry.code}\n```")
    if entry.arguments:
        rows = [f"| `{name}` | {default} | {text} |" for name, default, text in entry.arguments]
        lines.append("\n".join(["| argument | default | meaning |", "| --- | --- | --- |", *rows]))
    return "\n\n".join([*lines, f"Reference: {entry.reference}"])


def _facts(entry):
    choices = [f"{axis} {value}" for axis, value in entry.table.items() if value != "-"]
    yield "By name", ", ".join(f'`"{name}"`' for name in entry.names)
    yield "Choices", "; ".join(choices)
    yield "Cost", entry.cost
    support = entry.support
    if "causal" in support:
        yield "Causal", _causal(entry.name, support)
        yield "Can be cached", CACHED[support["cached"]]
        yield "Exports", _exports(support)
    backends = {"TensorFlow": "tensorflow", "JAX": "jax", "torch": "torch"}
    yield "Backends", ", ".join(title for title, key in backends.items() if support.get(key))


def _causal(name, support):
    variants = support.get("causal_with", {}).items()
    more = "".join(f"; with `{argument}` {CAUSAL[result]}" for argument, result in variants)
    has_pattern = support["saved_model"] != "keras"
    if has_pattern and not variants and not name.startswith(DECIDING):
        more = ", with a causal pattern"
    return CAUSAL[support["causal"]] + more


def _exports(support):
    kinds = []
    if support["saved_model"]:
        by_keras = support["saved_model"] == "keras"
        kinds.append("SavedModel" + " (by `keras.Model.export`)" * by_keras)
    if support["onnx"]:
        kinds.append(f"ONNX ({PARTS[support['onnx']]})")
    if support.get("litert"):
        kinds.append(f"LiteRT ({PARTS[support['litert']]})")
    if support["ctranslate2"]:
        kinds.append("CTranslate2")
    return ", ".join(kinds) or "none"
