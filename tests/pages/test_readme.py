"""The README is short, its measurements are those of their cards, its pictures are up to date."""

import configparser
import json
import re

import pages
import pytest
from PIL import Image

from keras_attn.viz.axes import values_by_axis
from recipes.catalogue.files import write_picture

README = pages.ROOT / "README.md"
CARDS = pages.ROOT / "recipes/benchmarks/cards"


def test_the_readme_has_at_most_8000_characters():
    assert len(pages.text(README)) <= 8000


def test_the_address_of_the_repository_is_in_one_place():
    setup = configparser.ConfigParser()
    setup.read(pages.ROOT / "setup.cfg")
    assert [p for p in pages.PAGES if setup["metadata"]["url"] in pages.text(p)] == []


def ratios(card, ours, peer, size=""):
    """Ratios of comparisons with a peer in the card's order; names may end in their threads."""
    groups = json.loads((CARDS / f"{card}.json").read_text(encoding="utf-8"))["groups"]
    return [
        comparison["ratio"]
        for group in groups
        for comparison in group["comparisons"]
        if group["name"].startswith(size)
        and comparison["name"].removesuffix(", 1 thread") == ours
        and comparison.get("peer", "").startswith(peer)
    ]


def measured(card):
    """The README's headline that links a card, as one line."""
    items = pages.text(README).split("## Measured")[1].split("\n- ")
    (item,) = [" ".join(item.split()) for item in items if f"cards/{card}.md" in item]
    return item


def span(speedups, digits=2):
    return f"{min(speedups):.{digits}f} to {max(speedups):.{digits}f} times as fast"


def test_the_headlines_are_those_of_their_cards():
    training = "keras_attn fit, float32"
    # The last two comparisons with KerasHub are of the first step of a process.
    *steps, _, _ = ratios("training", training, "KerasHub")
    assert f"{span(steps)} as KerasHub" in measured("training")
    assert f"{span(ratios('training', training, 'torch'))} as torch" in measured("training")
    exported = "decoding", "keras_attn, reloaded compiled SavedModel", "CTranslate2"
    for size, words in {
        "transformer_base, batch 1, greedy, one core": "{:.2f} times as fast as CTranslate2 with",
        "transformer_tiny, batch 1, greedy, one core": "{:.2f} with `transformer_tiny`",
        "transformer_tiny, batch 1, 4 beams, one core": "with four beams {:.2f}",
    }.items():
        (ratio,) = ratios(*exported, size)
        assert words.format(ratio) in measured("decoding")
    attention = measured("attention")
    local = ratios("attention", "keras_attn Local(256)", "torch flex_attention")
    assert f"`Local(256)`: {span(local)} as compiled `flex_attention`" in attention
    causal = [
        ratio
        for length in ("512", "2,048", "8,192")
        for ratio in ratios(
            "attention",
            "keras_attn Causal()",
            "torch",
            f"causal, {length} positions, forward and backward",
        )
    ]
    assert len(causal) == 3 and f"{span(causal)} as torch's" in attention
    soaks = json.loads((CARDS / "serving.json").read_text(encoding="utf-8"))["soaks"]
    soak = soaks["batched"]
    rate, last = soak["requests_per_second"], soak["percentiles_ms"]["99"]
    assert f"{rate:.0f} requests a second, {last:.0f} ms at p99" in measured("serving")


def test_ratios_are_above_1():
    stated = re.findall(r"([\d.]+) to ([\d.]+)\s+times", pages.text(README))
    assert len(stated) >= 4 and all(1 < float(low) < float(high) for low, high in stated)


def test_pictures_are_light():
    sizes = {
        f"{pages.name(page)}: {image}": (page.parent / image).stat().st_size
        for page in pages.PAGES
        for image in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", pages.text(page))
    }
    assert sizes and {image: size for image, size in sizes.items() if size >= 150_000} == {}


def test_the_picture_of_the_axes_is_up_to_date():
    shown = Image.open(pages.ROOT / ".github/images/axes.png").text["Description"].splitlines()
    assert shown == values_by_axis(), "draw it again: python -m recipes.catalogue"


@pytest.mark.slow
def test_the_command_draws_the_picture(tmp_path):
    write_picture(tmp_path)
    assert (tmp_path / "axes.png").is_file()
