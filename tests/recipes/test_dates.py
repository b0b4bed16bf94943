"""Dates in many languages, checked against Babel's own spelling of every one of them."""

import datetime
import itertools

import pytest
from babel.dates import format_date

from recipes.translate.dates import FORMATS, LOCALES, date_pairs


@pytest.fixture(scope="module")
def drawn():
    return date_pairs(num_train=3_000, num_validation=200, num_test=200)


def all_pairs(parts):
    return list(itertools.chain(*parts.values()))


def spelled(day, locales=LOCALES, formats=FORMATS):
    """Return the texts of Babel for one day."""
    return {format_date(day, name, locale=locale) for locale in locales for name in formats}


@pytest.mark.slow
def test_each_part_has_its_size_and_no_text_is_twice(drawn):
    sizes = {part: len(pairs) for part, pairs in drawn.items()}
    assert sizes == {"train": 3_000, "val": 200, "test": 200}
    texts = [text for text, _ in all_pairs(drawn)]
    assert len(texts) == len(set(texts))
    years = {int(iso[:4]) for _, iso in all_pairs(drawn)}
    assert years == set(range(1950, 2051))


@pytest.mark.slow
def test_every_text_is_how_babel_writes_its_day(drawn):
    for text, iso in drawn["test"]:
        assert text in spelled(datetime.date.fromisoformat(iso))


def test_all_locales_and_formats_are_drawn(drawn):
    """Each has a text that no other would write, in the train part."""
    missing = set(itertools.product(LOCALES, FORMATS))
    for text, iso in drawn["train"]:
        day = datetime.date.fromisoformat(iso)
        missing -= {
            (locale, name)
            for locale, name in missing
            if format_date(day, name, locale=locale) == text
        }
        if not missing:
            break
    assert missing == set()


# One writes the day first, the other the month.
CONFLICTING = ("pt_PT", "es_PA")


@pytest.mark.slow
def test_ambiguous_texts_are_never_drawn():
    options = {"locales": CONFLICTING, "formats": ["medium"]}
    days = [datetime.date(1950, 1, 1) + datetime.timedelta(n) for n in range(36_890)]
    assert days[-1] == datetime.date(2050, 12, 31)
    meanings = {}
    for day in days:
        for text in (f"{day:%d/%m/%Y}", f"{day:%m/%d/%Y}"):
            meanings.setdefault(text, set()).add(day.isoformat())
    expected = {text: min(isos) for text, isos in meanings.items() if len(isos) == 1}
    assert 0 < len(expected) < len(meanings)
    with pytest.raises(ValueError, match=f"write {len(expected)} unambiguous dates"):
        date_pairs(len(expected), 1, 0, **options)
    pairs = all_pairs(date_pairs(len(expected) - 20, 10, 10, **options))
    assert dict(pairs) == expected
    assert date_pairs(1, 0, 0, locales=CONFLICTING[:1], formats=["medium"])["val"] == []


@pytest.mark.slow
def test_a_seed_gives_the_same_pairs_and_another_gives_others():
    sizes = {"num_train": 50, "num_validation": 5, "num_test": 5, "locales": ["fr", "ko"]}
    assert date_pairs(**sizes, seed=3) == date_pairs(**sizes, seed=3)
    assert date_pairs(**sizes, seed=3) != date_pairs(**sizes, seed=4)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"locales": ["xx_nowhere"]}, "no format 'full' of locale 'xx_nowhere'"),
        ({"formats": ["tiny"]}, "no format 'tiny'"),
        ({"formats": ["short"], "locales": ["en"]}, "must write the whole year"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        date_pairs(1, 1, 1, **options)
