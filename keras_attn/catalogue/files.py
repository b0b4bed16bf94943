"""The files of the catalogue: the page and its pictures, in a checkout."""

import hashlib
import inspect
from pathlib import Path

from keras_attn.catalogue import page
from keras_attn.catalogue.drawings import DRAWINGS, draw

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "keras_attn/README.md"
IMAGES = ROOT / page.IMAGES
DPI = 90


def write():
    """Write the page, and the pictures whose drawing has changed."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page.text(), encoding="utf-8")
    for name in DRAWINGS:
        if not _is_current(name):
            draw(name).savefig(_path(name), dpi=DPI, metadata={"Description": fingerprint(name)})


def outdated():
    """Return the names of files that differ from what `write` would write."""
    is_current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page.text()
    files = [] if is_current else [PAGE.name]
    return files + [_path(name).name for name in DRAWINGS if not _is_current(name)]


def fingerprint(name):
    """Return a digest of the code and the arguments that draw a picture, kept in its metadata."""
    function, *arguments = DRAWINGS[name]
    drawn = f"{name} {arguments!r} {inspect.getsource(function)}"
    return hashlib.sha256(drawn.encode()).hexdigest()[:16]


def _path(name):
    return IMAGES / page.picture_name(name)


def _is_current(name):
    """Return True if the file contains the fingerprint: PNG stores a short text as it is."""
    path = _path(name)
    return path.exists() and fingerprint(name).encode() in path.read_bytes()
