"""The README: its Python runs, its links and pictures exist."""

import functools
import re
from pathlib import Path

import pytest
from PIL import Image

import keras_attn
from keras_attn.models.catalog import PRESETS
from keras_attn.viz.__main__ import write_pictures
from keras_attn.viz.axes import values_by_axis

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
LINKS = re.findall(r"\]\((?!https?://|#)([^)]+)\)", README)
IMAGES = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README)


@pytest.fixture
def quick(monkeypatch):
    """Presets of one layer, and few of the conformance checks, which have tests of their own."""
    for name, (build, sizes) in PRESETS.items():
        monkeypatch.setitem(PRESETS, name, (build, {**sizes, "num_layers": 1}))
    check = keras_attn.testing.check_attention
    left_out = ("xla", "gradients", "precision", "large_logits", "unknown_sizes", "formula")
    monkeypatch.setattr(
        keras_attn.testing, "check_attention", functools.partial(check, skip=left_out)
    )


@pytest.mark.usefixtures("quick")
def test_the_python_of_the_readme_runs_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), names)
    assert names["model"].count_params() > 0


@pytest.mark.parametrize("link", LINKS)
def test_links_into_the_repository_lead_somewhere(link):
    assert (ROOT / link).exists()


@pytest.mark.parametrize("image", IMAGES)
def test_pictures_are_light(image):
    assert (ROOT / image).stat().st_size < 150_000


def test_the_picture_of_the_axes_is_up_to_date():
    shown = Image.open(ROOT / ".github/images/axes.png").text["Description"].splitlines()
    assert shown == values_by_axis(), "draw it again: python -m keras_attn.viz .github/images"


def test_draw_writes_all_pictures(tmp_path):
    write_pictures(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["axes.png", "patterns.png", "sinusoids.png"]
