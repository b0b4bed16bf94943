"""The catalogue: complete and up to date."""

import importlib
import inspect
import re

import keras

from keras_attn.models.paper_sizes import PRESETS
from recipes.catalogue import files, page
from recipes.catalogue.__main__ import main
from recipes.catalogue.drawings import DRAWINGS
from recipes.catalogue.entries import (
    NOT_VALUES,
    OUTSIDE_MODELS,
    SECTIONS,
    Entry,
    sections,
)
from recipes.catalogue.needs import NEEDS

ENTRIES = {entry.name: entry for _, _, entries in sections() for entry in entries}
VALUES = [name for name in ENTRIES if not name.startswith(OUTSIDE_MODELS)]
# Packages with registered classes that are no values of an axis.
OTHERS = {"callbacks", "layers", "metrics", "models", "optimizers", "text"}
TEXTS = page.texts()
BLOCKS = re.findall(r"^```python\n(.*?)^```", "".join(TEXTS.values()), re.MULTILINE | re.DOTALL)


def registered():
    """Names of the registered public classes, by their package."""
    names = {}
    for value in keras.saving.get_custom_objects().values():
        root, package, *_ = [*value.__module__.split("."), ""]
        if root == "keras_attn" and value.__name__ in _public(package):
            names.setdefault(package, set()).add(f"{package}.{value.__name__}")
    return names


def _public(package):
    return getattr(importlib.import_module(f"keras_attn.{package}"), "__all__", ())


def missing(entry):
    """What to add for an entry, as sentences; see the docstring of `recipes.catalogue`."""
    is_loss = entry.name.startswith("losses.")
    has_cost = entry.cost or entry.name.startswith("testing.")
    needs = {name for _, names in NEEDS for name in names.split()}
    checks = {
        "Its docstring needs a formula: indented lines after the first line.": entry.formula,
        "Its docstring needs a paragraph `Use it for ...` of at most 20 words.": (
            0 < len(entry.use.split()) <= 20
        ),
        "Its docstring needs `Time O(...) and memory O(...)` or `Cost: ...`.": has_cost,
        "Its docstring needs an `Example:` of 2 to 13 lines.": (
            2 <= len(entry.code.splitlines()) <= 13
        ),
        "Its docstring needs a `Reference:` with a link.": "http" in entry.reference,
        "The docstring of a model needs a table of its choices.": (
            entry.table or not entry.name.startswith("models.")
        ),
        "recipes/catalogue/drawings.py needs a line in `DRAWINGS`.": entry.name in DRAWINGS,
        "recipes/catalogue/needs.py needs its name.": entry.name in needs,
        "tests/support/catalogue_models.py needs a tiny model; then run "
        f"PYTHONPATH=. python tests/support/catalogue_support.py {entry.name}": (
            "jax" in entry.support and (is_loss or "onnx" in entry.support)
        ),
    }
    if entry.name.startswith(OUTSIDE_MODELS):
        places = "recipes/catalogue/drawings.py", "tests/"
        checks = {k: v for k, v in checks.items() if not k.startswith(places)}
    return [sentence for sentence, is_met in checks.items() if not is_met]


def test_every_registered_value_and_every_model_has_an_entry():
    axes = {package: names for package, names in registered().items() if package not in OTHERS}
    values = {f"models.{build.__name__}" for build, _ in PRESETS.values()}.union(*axes.values())
    assert len(values) > 40
    assert set(axes) <= {package for _, package, _ in SECTIONS}, "an axis lacks: see SECTIONS"
    assert values - NOT_VALUES <= set(ENTRIES)


def test_every_entry_is_complete():
    assert {name: lacks for name in ENTRIES if (lacks := missing(ENTRIES[name]))} == {}


def test_what_a_new_value_lacks_is_named():
    assert len(missing(Entry("scores.New"))) == 8


def test_the_files_are_up_to_date():
    assert files.outdated() == [], "run: python -m recipes.catalogue"


def test_a_changed_docstring_or_drawing_is_detected(monkeypatch, capsys):
    monkeypatch.setattr(page, "texts", lambda: TEXTS | {"depth/README.md": "changed"})
    monkeypatch.setattr(files, "fingerprint", lambda name: "no" * 8 if name == "depth.ACT" else "")
    assert main(["--check"]) == 1
    assert "Outdated: depth/README.md, depth_act.png." in capsys.readouterr().err


def test_every_picture_is_small_and_belongs_to_a_value():
    assert set(DRAWINGS) == set(VALUES)
    pictures = {path.name: path.stat().st_size for path in files.IMAGES.iterdir()}
    assert set(pictures) == {page.picture_name(name) for name in VALUES}
    assert max(pictures.values()) < 40_000


def test_the_index_links_each_heading():
    for path, text in TEXTS.items():
        headings = [page.anchor(x.lstrip("# ")) for x in text.splitlines() if x[:3] == "## "]
        assert headings and len(headings) == len(set(headings))
        if path != "README.md":
            assert set(re.findall(r"]\(#([^)]+)\)", text)) == set(headings)
            linked = re.findall(rf"]\({path}#([^)]+)\)", TEXTS["README.md"])
            assert set(linked) == set(headings)


def test_models_have_their_arguments():
    for entry in ENTRIES.values():
        names = [name for name, _, _ in entry.arguments]
        if entry.name.startswith("models."):
            build = getattr(importlib.import_module("keras_attn.models"), entry.name[7:])
            assert set(names) == set(inspect.signature(build).parameters) - {"name"}, entry.name


def test_each_example_is_a_program():
    """Doctests run the examples, and tests/test_architecture.py looks for names they lack."""
    assert len(BLOCKS) >= len(VALUES)
    for code in BLOCKS:
        compile(code, "README.md", "exec")
