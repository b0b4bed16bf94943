"""The README is short; its pictures are light and up to date."""

import re

import pages
import pytest
from PIL import Image

from keras_attn.viz.__main__ import write_pictures
from keras_attn.viz.axes import values_by_axis

README = pages.ROOT / "README.md"


def test_the_readme_has_at_most_8000_characters():
    assert len(pages.text(README)) <= 8000


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_pictures_are_light(page):
    for image in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", pages.text(page)):
        assert (page.parent / image).stat().st_size < 150_000, image


def test_the_picture_of_the_axes_is_up_to_date():
    shown = Image.open(pages.ROOT / ".github/images/axes.png").text["Description"].splitlines()
    assert shown == values_by_axis(), "draw it again: python -m keras_attn.viz .github/images"


def test_draw_writes_all_pictures(tmp_path):
    write_pictures(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["axes.png", "patterns.png", "sinusoids.png"]
