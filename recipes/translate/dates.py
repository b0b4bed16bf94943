"""Dates of many locales, and the same dates in ISO 8601: a translation task made offline.

The Unicode CLDR, which Babel carries, says how each locale writes a date in full ("giovedì 5
gennaio 1950"), long and medium form. A model that translates them to "1950-01-05" must learn the
months of a dozen languages, the order of the fields and to copy digits, yet does so in minutes on
a processor, and an answer is right or wrong.
"""

import bisect
import calendar
import datetime
import itertools
import random
import re

try:
    from babel import Locale, UnknownLocaleError
    from babel.dates import DateTimeFormat, get_date_format
except ImportError as error:
    raise ImportError(
        "The dates are made with the package babel: pip install 'keras_attn[recipes]'"
    ) from error

LOCALES = (
    "cs", "de", "el", "en", "en_GB", "es", "fr", "it", "ja",
    "ko", "nl", "pl", "pt", "ru", "sv", "tr", "uk", "zh",
)  # fmt: skip
FORMATS = ("full", "long", "medium")
YEARS = range(1950, 2051)

_YEAR = "{year}"
_FIELD = re.compile(r"%\((\w+)\)s")
# What the text of a field depends on, by the first letter of its name in the CLDR.
_DEPENDS_ON = {
    "y": lambda day: None,
    "G": lambda day: None,
    "M": lambda day: day.month,
    "L": lambda day: day.month,
    "d": lambda day: day.day,
    "E": lambda day: day.weekday(),
    "c": lambda day: day.weekday(),
}


def date_pairs(
    num_train=50_000,
    num_validation=1_000,
    num_test=2_000,
    *,
    seed=0,
    locales=LOCALES,
    formats=FORMATS,
):
    """Draw dates of the years 1950 to 2050 in many languages, with their translation to ISO 8601.

    Every text is drawn at most once, even if several locales and formats write it, so no text of
    the test is in another part. A text that names two days, because one locale puts the day first
    and another the month, is never drawn, so every text has one answer. The same seed and release
    of Babel give the same pairs.

    Args:
        num_train: int.
        num_validation: int.
        num_test: int.
        seed: int.
        locales: names of locales in the CLDR.
        formats: some of "full", "long" and "medium". "short" writes two digits of the year in most
            locales, which is ambiguous.

    Returns:
        dict of "train", "val" and "test": lists of (text, ISO date).

    Raises:
        ValueError: if there are fewer texts than asked for, the CLDR has no such locale or format,
            or a format lacks the whole year.

    Example:
    >>> date_pairs(1, 1, 1, locales=["ja"], formats=["medium"])["train"]
    [('2019/02/15', '2019-02-15')]
    """
    styles = [_Style(locale, name) for locale, name in itertools.product(locales, formats)]
    pairs_of = {}
    for year in YEARS:
        if _calendar(year) not in pairs_of:
            pairs_of[_calendar(year)] = _unambiguous(styles, year)
    ends = list(itertools.accumulate(len(pairs_of[_calendar(year)]) for year in YEARS))
    sizes = {"train": num_train, "val": num_validation, "test": num_test}
    if sum(sizes.values()) > ends[-1]:
        raise ValueError(
            f"The locales and formats write {ends[-1]} unambiguous dates, fewer than asked for. "
            f"Received: num_train={num_train}, num_validation={num_validation}, "
            f"num_test={num_test}"
        )

    def pair(number):
        index = bisect.bisect_right(ends, number)
        year = YEARS[index]
        text, day = pairs_of[_calendar(year)][number - ends[index]]  # counted from the list's end
        return text.replace(_YEAR, str(year)), day.replace(year=year).isoformat()

    drawn = iter(random.Random(seed).sample(range(ends[-1]), sum(sizes.values())))
    return {part: [pair(next(drawn)) for _ in range(size)] for part, size in sizes.items()}


def iso_dates():
    """Return all days of the years 1950 to 2050 in ISO 8601, in their order."""
    first, last = datetime.date(YEARS[0], 1, 1), datetime.date(YEARS[-1], 12, 31)
    days = range(first.toordinal(), last.toordinal() + 1)
    return [datetime.date.fromordinal(day).isoformat() for day in days]


def _calendar(year):
    """Return a key of years whose dates differ in the year's digits only."""
    return calendar.isleap(year), datetime.date(year, 1, 1).weekday()


def _unambiguous(styles, year):
    """Return the unambiguous (text, day) of a year, with a placeholder for the year's digits.

    Dates of different years need no comparison: every text has its year in four digits, and no
    other run of digits is as long.
    """
    first = datetime.date(year, 1, 1)
    days = [first + datetime.timedelta(n) for n in range(365 + calendar.isleap(year))]
    meanings = {}
    for style in styles:
        for day in days:
            meanings.setdefault(style.write(day), set()).add(day)
    return [(text, day) for text, (day, *others) in meanings.items() if not others]


class _Style:
    """A locale's date format. Babel spells each field once."""

    def __init__(self, locale, name):
        try:
            self._locale = Locale.parse(locale)
            pattern = get_date_format(name, locale=self._locale).format
        except (UnknownLocaleError, KeyError, ValueError) as error:
            raise ValueError(f"The CLDR has no format {name!r} of locale {locale!r}.") from error
        self._fields = _FIELD.findall(pattern)
        self._template = _FIELD.sub("%s", pattern)
        self._spelled = {}
        if self._fields.count("y") != 1 or any(f[0] not in _DEPENDS_ON for f in self._fields):
            raise ValueError(
                "A format must write the whole year, and no more than era, year, month, day and "
                f"day of the week. Received: format {name!r} of locale {locale!r}, {pattern!r}"
            )

    def write(self, day):
        return self._template % tuple(self._spell(field, day) for field in self._fields)

    def _spell(self, field, day):
        if field == "y":
            return _YEAR
        key = field, _DEPENDS_ON[field[0]](day)
        if key not in self._spelled:
            self._spelled[key] = DateTimeFormat(day, self._locale)[field]
        return self._spelled[key]
