"""Text as it is prepared: cleaned, identified by a hash, and given to a split by it."""

import hashlib
import re
import unicodedata

from ..common.text_reader import unify_line_ends

KEY_BYTES = 32
_SPLIT_BYTES = 8  # of a key, which decide the split
SAMPLED = 65_536  # characters of a piece of the tokenizer's sample

# Vertical tabs, page breaks, separators of records and next lines, which may divide words.
_BREAKS = frozenset("\x0b\x0c\x1c\x1d\x1e\x1f\x85")
# Controls but tab and line end, marks of byte order, halves of surrogate pairs.
_CONTROLS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\ufeff\ufffe\uffff\ud800-\udfff]+")
_BLANK_LINES = re.compile("\n{3,}")


def clean(text):
    """Return a document in NFC, without control characters and superfluous white space.

    Line ends become "\\n", and so do controls that divide words, such as page breaks. White space
    at the ends of lines, blank lines at both ends of the document and all but one of successive
    blank lines are left out. Nothing else is changed: neither spaces within a line nor letters.
    """
    text = _CONTROLS.sub(_line_end_or_nothing, unify_line_ends(text))
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    text = "\n".join([line.rstrip() for line in text.split("\n")])
    return _BLANK_LINES.sub("\n\n", text).strip("\n")


def _line_end_or_nothing(controls):
    return "" if _BREAKS.isdisjoint(controls[0]) else "\n"


def clean_sides(sides):
    """Return the cleaned sides of a document; each side of a pair is one line."""
    if len(sides) == 1:
        return (clean(*sides),)
    return tuple(" ".join(clean(side).split("\n")).strip() for side in sides)


def key_of(sides):
    """Return the key of a cleaned document: documents with the same one are repeats.

    It is the document's SHA-256. The first bytes of a pair's key are those of its source's SHA-256,
    so that all translations of a sentence fall to one split.
    """
    source = hashlib.sha256(sides[0].encode())
    whole = source.copy()
    for side in sides[1:]:
        whole.update(b"\0" + side.encode())
    return source.digest()[:_SPLIT_BYTES] + whole.digest()[_SPLIT_BYTES:]


def split_of(key, valid, test):
    """Return the split of a document, of which `valid` and `test` have these shares.

    `key` is bytes, or an array of them. The split depends on the document alone, of a pair on its
    source, so a corpus that grows moves no document to another split.
    """
    place = int.from_bytes(bytes(key[:_SPLIT_BYTES]), "big") / 2 ** (8 * _SPLIT_BYTES)
    if place < valid:
        return "valid"
    return "test" if place < valid + test else "train"


def sample(sides, key, share):
    """Yield this share of the pieces of a document, each with its place in a random order.

    A piece is some 65,000 characters, so that a few long documents give a sample too.
    """
    for number, side in enumerate(sides):
        for start in range(0, len(side), SAMPLED):
            content = key + start.to_bytes(8, "big") + b"\0" * number
            place = hashlib.blake2b(content, digest_size=16).hexdigest()
            if int(place, 16) < share * 2**128:
                yield place, side[start : start + SAMPLED]
