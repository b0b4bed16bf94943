"""Problems in texts: their counts, and the places of the first few."""

_MOST_NAMED = 20
BROKEN = "lines that are no JSON object"
TOO_LONG_JSON = "lines of more than 64 MiB"
NO_FIELD = "lines without a text in the field"
NOT_UTF8 = "documents that are not UTF-8"
EMPTY_FILE = "empty files"
EMPTY = "empty documents"
ONE_SIDE = "pairs of which one side is empty"
TOO_LONG = "lines of more than 8 MiB"
DAMAGED = "damaged files"


class Problems:
    """Counts of what was left out, by kind, and the places of the first of each.

    Args:
        is_fatal: bool. True to raise a ValueError at the first.
    """

    def __init__(self, is_fatal=False):
        self._is_fatal = is_fatal
        self.counts = {}

    def add(self, kind, place):
        """Count one at a place, such as "a.jsonl, line 3"."""
        if self._is_fatal:
            raise ValueError(f"{place}: --strict allows no {kind}.")
        one = self.counts.setdefault(kind, {"count": 0, "first": []})
        one["count"] += 1
        if len(one["first"]) < _MOST_NAMED:
            one["first"].append(place)


def total(counts):
    """Return the sum of a list of `Problems.counts`."""
    kinds = sorted({kind for one in counts for kind in one})
    return {kind: _sum([one[kind] for one in counts if kind in one]) for kind in kinds}


def _sum(counts):
    places = [place for one in counts for place in one["first"]]
    return {"count": sum(one["count"] for one in counts), "first": places[:_MOST_NAMED]}
