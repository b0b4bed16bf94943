"""The files of the catalogue, and the picture of the axes in the README, in a checkout."""

import hashlib
import inspect
from pathlib import Path

from keras_attn.viz.axes import plot_axes, values_by_axis

from . import page
from .drawings import DRAWINGS, draw

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "keras_attn"
IMAGES = ROOT / page.IMAGES
AXES, DPI = "axes.png", 90


def write():
    """Write the pages, and the pictures whose drawing has changed."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    if not _shows_all_values(IMAGES.parent / AXES):
        write_picture(IMAGES.parent)
    for path, text in page.texts().items():
        (FOLDER / path).write_text(text, encoding="utf-8")
    for name in DRAWINGS:
        if not _is_current(name):
            draw(name).savefig(_path(name), dpi=DPI, metadata={"Description": fingerprint(name)})


def write_picture(folder):
    """Write the picture of the axes to `folder`."""
    # The metadata lists the values in the picture, by which an outdated one is detected.
    metadata = {"Description": "\n".join(values_by_axis())}
    plot_axes().savefig(Path(folder) / AXES, dpi=80, metadata=metadata)


def outdated():
    """Return the names of files that differ from what `write` would write."""
    files = [path for path, text in page.texts().items() if _read(FOLDER / path) != text]
    files += [] if _shows_all_values(IMAGES.parent / AXES) else [AXES]
    return files + [_path(name).name for name in DRAWINGS if not _is_current(name)]


def fingerprint(name):
    """Return a digest of the code and the arguments that draw a picture, kept in its metadata."""
    function, *arguments = DRAWINGS[name]
    drawn = f"{name} {arguments!r} {inspect.getsource(function)}"
    return hashlib.sha256(drawn.encode()).hexdigest()[:16]


def _read(path):
    return path.read_text(encoding="utf-8") if path.exists() else None


def _path(name):
    return IMAGES / page.picture_name(name)


def _shows_all_values(path):
    """Return True if the picture of the axes has the values of today."""
    return path.exists() and "\n".join(values_by_axis()).encode() in path.read_bytes()


def _is_current(name):
    """Return True if the file contains the fingerprint: PNG stores a short text as it is."""
    path = _path(name)
    return path.exists() and fingerprint(name).encode() in path.read_bytes()
