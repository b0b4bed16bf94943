"""Tables of texts: `.csv`, `.tsv` and `.jsonl` files, read by the names of their columns."""

import csv
import io
import json
from pathlib import Path

from ..common.text_reader import is_blank, text_blocks, unify_line_ends

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
# Python's own limit of a field is 131,072 characters.
_MOST_CHARACTERS = 10**7


def read_columns(path, *columns):
    """Read some columns of a table in UTF-8, as `read_rows` does, without the numbers of lines."""
    return [values for _, values in read_rows(path, *columns)]


def read_names(path):
    """Return the names of the columns of a `.csv` or `.tsv` file.

    Raises:
        ValueError: as for `read_rows`.
    """
    kind = _kind_of(path)
    if kind not in _DELIMITERS:
        raise ValueError(f"A table with a row of names must be a .csv or .tsv file: {path}.")
    lines = next(text_blocks(path)).split("\n")
    for fields in csv.reader(lines, delimiter=_DELIMITERS[kind]):
        if fields:
            return fields
    raise ValueError(f"The file {path} has no row with the names of its columns.")


def read_rows(path, *columns, may_be_empty=()):
    """Read some columns of a table in UTF-8.

    A `.csv` or `.tsv` file begins with a row of names, and its fields may be quoted; each line of a
    `.jsonl` file is an object. Each may be compressed, `.gz`.

    Args:
        path: str.
        *columns: names.
        may_be_empty: those of them whose values may be missing: "", or in `.jsonl` None.

    Returns:
        list of rows, each the number of its first line and a list of the columns' values: str, or
        in `.jsonl` any of JSON's but null.

    Raises:
        ValueError: if the file is missing, empty, damaged, not UTF-8 or of another kind, a column
            or a value is missing, or a quotation holds whole rows.
    """
    kind = _kind_of(path)
    text = "".join(text_blocks(path))
    rows = _read_lines(text, path) if kind == ".jsonl" else _read_fields(text, path, kind, columns)
    may_be_empty = {*may_be_empty}
    picked = [(line, _pick(row, columns, path, line, may_be_empty)) for line, row in rows]
    if not picked:
        raise ValueError(f"The file {path} has no row after the names of its columns.")
    return picked


def _kind_of(path):
    kind = Path(str(path).removesuffix(".gz")).suffix
    if kind not in (*_DELIMITERS, ".jsonl"):
        raise ValueError(f"A table must be a .csv, .tsv or .jsonl file, or a .gz of one: {path}.")
    return kind


def _read_lines(text, path):
    """Yield the number of each line and its object."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"Line {number} of the file {path} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise ValueError(f"Line {number} of the file {path} is not a JSON object.")
        yield number, row


def _refuse_constant(name):
    raise ValueError(f"it has no {name}; null is a missing value.")


def _read_fields(text, path, kind, columns):
    """Yield the number of each row's first line and a dict of its fields."""
    before = csv.field_size_limit(_MOST_CHARACTERS)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_DELIMITERS[kind], strict=True)
    names, plain, last = None, None, 0
    try:
        for fields in reader:
            first, last = last + 1, reader.line_num
            if not fields:
                continue
            if names is None:
                names = fields
                _check_names(names, columns, path, first)
            if len(fields) > len(names):
                raise ValueError(
                    f"Line {first} of the file {path} has more fields than there are columns, "
                    f"{len(names)}; quote a field that has a separator."
                )
            if last > first:
                plain = plain or _PlainRows(text, kind, len(names))
            if last > first and plain.are_rows(first, last):
                raise ValueError(
                    f"A quotation in lines {first} to {last} of the file {path} holds lines that "
                    "are rows by themselves; double each quotation mark of a text and quote the "
                    "text, or write the table as .jsonl."
                )
            if fields is not names:
                yield first, {**dict.fromkeys(names), **dict(zip(names, fields, strict=False))}
    except csv.Error as error:
        if "unexpected end" in str(error):
            raise ValueError(
                f"The quotation that begins in line {last + 1} of the file {path} has no end."
            ) from error
        raise ValueError(f"Line {reader.line_num} of the file {path}: {error}.") from error
    finally:
        csv.field_size_limit(before)


def _check_names(names, columns, path, line):
    for name in columns:
        if name not in names:
            raise ValueError(
                f"There is no column {name!r} in the header of the file {path}, line {line}, which "
                f"has {', '.join(map(repr, names))}."
            )
        if names.count(name) > 1:
            raise ValueError(f"The file {path} has {names.count(name)} columns {name!r}.")


class _PlainRows:
    """The lines of a table, read as rows without quotations.

    A tab divides columns, and hardly any text has one. A comma divides columns only if each line of
    the file has as many, and no space follows it.
    """

    def __init__(self, text, kind, width):
        self._lines, self._separator, self._width = text.split("\n"), _DELIMITERS[kind], width
        self._has_commas = kind == ".csv"
        counts = {line.count(self._separator) for line in self._lines if line.strip()}
        self._can_be_rows = width > 1 and (not self._has_commas or counts == {width - 1})

    def are_rows(self, first, last):
        """Return True if each line of a quotation has all columns, and none is empty."""
        return self._can_be_rows and all(map(self._is_row, self._lines[first - 1 : last]))

    def _is_row(self, line):
        fields = line.split(self._separator)
        is_text = self._has_commas and any(field[:1].isspace() for field in fields[1:])
        return len(fields) == self._width and all(map(str.strip, fields)) and not is_text


def _pick(row, columns, path, line, may_be_empty):
    for name in columns:
        if name not in row:
            raise ValueError(
                f"There is no column {name!r} in line {line} of the file {path}, which has "
                f"{', '.join(map(repr, row))}."
            )
        value = row[name]
        if name in may_be_empty:
            continue
        if value is None or isinstance(value, str) and is_blank(value):
            raise ValueError(f"The column {name!r} is empty in line {line} of the file {path}.")
    values = (row[name] for name in columns)
    return [unify_line_ends(value) if isinstance(value, str) else value for value in values]
