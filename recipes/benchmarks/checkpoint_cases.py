"""Cases of a family of checkpoints: sizes and options, chosen so that each pair of values occurs.

No library is imported: the processes of `checkpoints` have other ones each.
"""

import hashlib
import itertools
import json
from typing import NamedTuple

SIZE, CLASS = "size", "class"  # factors beside the options


class Case(NamedTuple):
    """A random checkpoint: a class of transformers and the options of its configuration."""

    family: str
    chosen: dict  # by factor, the index of the size, the class, and the value of each option
    class_name: str
    options: dict
    refused_by: str | None  # what the sentence must name; None for a checkpoint that is converted
    is_bare: bool = False  # whether config.json lacks all options but these

    def key(self):
        """Return a name that is the same for the same checkpoint."""
        parts = [self.class_name, self.options, *(["bare"] if self.is_bare else [])]
        text = json.dumps(parts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def cases(name, family):
    """Return the cases of a family: each class with defaults, the covering array, refusals."""
    factors = {
        CLASS: list(family.classes),
        SIZE: list(range(len(family.sizes))),
        **{option: list(values) for option, values in family.options.items()},
    }
    rows = covering_array(factors, family.excluded)
    made = [_case(name, family, row) for row in rows]
    first = {factor: values[0] for factor, values in factors.items()}
    alone = [_case(name, family, {**first, **row}, word) for word, row in family.refused]
    return [*_bare_cases(name, family), *made, *alone]


def _bare_cases(name, family):
    """Return a case of each class whose config.json has the sizes only: all else is a default."""
    for index, class_name in enumerate(family.classes):
        chosen = {**family.needed, CLASS: class_name, SIZE: index % len(family.sizes)}
        yield _case(name, family, chosen)._replace(is_bare=True)


def _case(name, family, chosen, refused_by=None):
    size = family.sizes[chosen[SIZE]]
    options = {k: value for k, value in chosen.items() if k not in (CLASS, SIZE)}
    options = {k: value(size) if callable(value) else value for k, value in options.items()}
    shown = {**options, CLASS: chosen[CLASS], SIZE: chosen[SIZE]}
    return Case(name, shown, chosen[CLASS], {**size, **options}, refused_by)


def has_any(chosen, rows):
    """Return True if the values that a case has chosen include all of one of the rows."""
    return any(all(k in chosen and chosen[k] == value for k, value in row.items()) for row in rows)


def covering_array(factors, excluded=()):
    """Return few rows in which each pair of values of two factors occurs, but excluded ones.

    Each row begins with a pair that no row has yet. Each other factor then takes the value with
    which most such pairs occur.

    Args:
        factors: dict of a factor and the list of its values.
        excluded: dicts of values that no row may have together.
    """
    names = list(factors)
    missing = {
        ((a, i), (b, j)): None
        for a, b in itertools.combinations(names, 2)
        for i, j in itertools.product(range(len(factors[a])), range(len(factors[b])))
        if not has_any({a: factors[a][i], b: factors[b][j]}, excluded)
    }
    rows = []
    while missing:
        row = dict(next(iter(missing)))
        if not _fill(row, names, factors, excluded, missing):
            del missing[next(iter(missing))]  # no row may have this pair
            continue
        for pair in itertools.combinations(((name, row[name]) for name in names), 2):
            missing.pop(pair, None)
        rows.append({name: factors[name][row[name]] for name in names})
    return rows


def _fill(row, names, factors, excluded, missing):
    """Choose a value's index for each factor that a row lacks; return False if none is allowed."""

    def is_allowed(chosen):
        return not has_any({name: factors[name][i] for name, i in chosen.items()}, excluded)

    def count(name, index):
        pairs = ((pair, (name, index)) for pair in row.items())
        return sum(pair in missing or pair[::-1] in missing for pair in pairs)

    for name in names:
        if name in row:
            continue
        # Indices in another order in each row, so that pairs that are missing nowhere vary too.
        turn = range(len(factors[name]))
        turn = sorted(turn, key=lambda i: (i + len(missing)) % len(factors[name]))  # noqa: B023
        allowed = [index for index in turn if is_allowed({**row, name: index})]
        if not allowed:
            return False
        row[name] = max(allowed, key=lambda index: count(name, index))  # noqa: B023
    return is_allowed(row)
