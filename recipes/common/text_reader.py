"""The text of a user's file: UTF-8, without marks of byte order, each line's end as "\\n".

In a running text and in a table U+000A, U+000D and both together end a line. In parallel text
U+000D alone does not: a line more on one side would give each later sentence a wrong translation.
"""

import codecs
import io
import unicodedata

from . import files

_MARK = "\ufeff"  # of the byte order
_UTF16 = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE
_INVISIBLE = {"Cc", "Cf", "Zl", "Zp", "Zs"}  # Unicode's controls, formats and spaces
_MOST_NAMED = 10


def text_blocks(path, errors="strict"):
    """Yield the text of a file in blocks of some hundred thousand characters.

    Args:
        path: str or path. Its name may end in .gz or .zst.
        errors: "strict" or "ignore", for bytes that are not UTF-8.

    Raises:
        ValueError: if the file is missing, empty, damaged or not UTF-8.
    """
    is_line_start = True
    for block in _decoded(path, errors, any_line_end=True):
        # Files that were joined to one have a mark at the start of a line.
        before = "\n" if is_line_start else ""
        is_line_start = block.endswith("\n") if block else is_line_start
        yield (before + block).replace(f"\n{_MARK}", "\n")[len(before) :]


def parallel_lines(path):
    """Yield the lines of a file of parallel text, without their ends.

    Raises:
        ValueError: as for `text_blocks`; or if no U+000A, but U+000D ends the lines.
    """
    has_no_line_feed, rest = True, ""
    for block in _decoded(path, "strict", any_line_end=False):
        *lines, rest = (rest + block).split("\n")
        has_no_line_feed = has_no_line_feed and not lines
        yield from map(_plain, lines)
    last = _plain(rest)
    returns = last.count("\r")
    if has_no_line_feed and returns:
        raise ValueError(
            f"The file {path} must end its lines with line feeds, U+000A. "
            f"Received: none, but {returns} carriage returns, U+000D."
        )
    if rest:
        yield last


def unify_line_ends(text):
    """Return a text with "\\n" for every line end, as `text_blocks` reads it."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def is_blank(text):
    """Return True for a text of spaces, controls and other characters that show nothing."""
    return all(unicodedata.category(character) in _INVISIBLE for character in text)


def line_names(numbers):
    """Return the numbers of lines as the subject of a sentence: "Lines 2, 3 and 5"."""
    numbers = [*map(str, numbers)]
    if len(numbers) == 1:
        return f"Line {numbers[0]}"
    more = len(numbers) - _MOST_NAMED
    if more > 0:
        numbers = [*numbers[:_MOST_NAMED], f"{more} more"]
    return f"Lines {', '.join(numbers[:-1])} and {numbers[-1]}"


def _plain(line):
    return line.rstrip("\r").removeprefix(_MARK)


def _decoded(path, errors, any_line_end):
    decoder = codecs.getincrementaldecoder("utf-8-sig")(errors)
    if any_line_end:
        decoder = io.IncrementalNewlineDecoder(decoder, translate=True)
    lines = 0
    try:
        for block in files.blocks(path):
            yield decoder.decode(block)
            lines += block.count(b"\n")
        yield decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        if not lines and error.object.startswith(_UTF16):
            raise ValueError(f"The file {path} must be UTF-8. Received: UTF-16.") from error
        line = lines + error.object[: error.start].count(b"\n") + 1
        raise ValueError(f"Line {line} of the file {path} is not UTF-8: {error}") from error
