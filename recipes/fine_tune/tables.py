"""Tables of texts: `.csv`, `.tsv` and `.jsonl` files, read by the names of their columns."""

import csv
import io
import json
from pathlib import Path

from ..common import files

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
# Python's own limit of a field is 131,072 characters.
_MOST_CHARACTERS = 10**7


def read_columns(path, *columns):
    """Read some columns of a table in UTF-8.

    A `.csv` or `.tsv` file begins with a row of names, and its fields may be quoted; each line of a
    `.jsonl` file is an object. Each may be compressed, `.gz`.

    Args:
        path: str.
        *columns: names.

    Returns:
        list of rows, each a list of the columns' values: str, or in `.jsonl` any of JSON's but
        null.

    Raises:
        ValueError: if the file is missing, empty, damaged, not UTF-8 or of another kind, or a
            column or a value is missing.
    """
    name = Path(str(path).removesuffix(".gz"))
    kind = name.suffix
    if kind not in (*_DELIMITERS, ".jsonl"):
        raise ValueError(f"A table must be a .csv, .tsv or .jsonl file, or a .gz of one: {path}.")
    content = files.read(path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ValueError(f"Line {line} of the file {path} is not UTF-8: {error}") from error
    rows = _read_lines(text, path) if kind == ".jsonl" else _read_fields(text, path, kind)
    picked = [_pick(row, columns, path, line) for line, row in rows]
    if not picked:
        raise ValueError(f"The file {path} has no row after the names of its columns.")
    return picked


def _read_lines(text, path):
    """Yield the number of each line and its object."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"Line {number} of the file {path} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise ValueError(f"Line {number} of the file {path} is not a JSON object.")
        yield number, row


def _read_fields(text, path, kind):
    """Yield the number of each row's last line and a dict of its fields."""
    before = csv.field_size_limit(_MOST_CHARACTERS)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=_DELIMITERS[kind], strict=True)
    try:
        for row in reader:
            if None in row:
                raise ValueError(
                    f"Line {reader.line_num} of the file {path} has more fields than there are "
                    f"columns, {len(reader.fieldnames)}; quote a field that has a separator."
                )
            yield reader.line_num, row
    except csv.Error as error:
        raise ValueError(f"Line {reader.line_num} of the file {path}: {error}.") from error
    finally:
        csv.field_size_limit(before)


def _pick(row, columns, path, line):
    for name in columns:
        if name not in row:
            raise ValueError(
                f"There is no column {name!r} in line {line} of the file {path}, which has "
                f"{', '.join(map(repr, row))}."
            )
        if row[name] is None or row[name] == "":
            raise ValueError(f"The column {name!r} is empty in line {line} of the file {path}.")
    return [row[name] for name in columns]
