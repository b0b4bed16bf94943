"""A page that shows attention scores over tokens, in one file without a network."""

import base64
import json
import pathlib

import numpy as np

from keras_attn.files import atomic_file
from keras_attn.viz.attention_maps import check_tokens, maps_of

_HTML = pathlib.Path(__file__).with_name("attention.html")
_DATA = "{}/* data */"
_STEPS = 2**16 - 1  # of a weight from 0 to 1


def write_attention_page(path, scores, tokens, key_tokens=None, *, layers=None, row=0):
    """Write an HTML page of what each token attends to.

    Hovering a query, or moving to it by the keyboard, shades the keys by its weights; hovering a
    key shades the queries by theirs. One chooses a layer or step, and a head or the mean over the
    heads. The page is one file, which needs no network, no server and no other file. A browser sets
    any script of which it has a font, from right to left where it must. A weight is kept to 1 part
    in 65,535 and takes 8/3 bytes.

    Args:
        path: string or path of the file, which appears complete or not at all.
        scores, tokens, key_tokens, layers, row: as `keras_attn.viz.plot_attention`.

    Returns:
        The `pathlib.Path` of the file.

    Raises:
        ValueError: if `scores` are empty or of another shape, hold weights outside [0, 1], the
            numbers of tokens are not T and S of every layer, or `layers` or `row` does not exist.

    Example:
        >>> import numpy as np, tempfile
        >>> from keras_attn.viz import write_attention_page
        >>> folder = tempfile.mkdtemp()
        >>> path = write_attention_page(f"{folder}/page.html", np.eye(3), ["I", "see", "you"])
        >>> "see" in path.read_text(encoding="utf-8")
        True
    """
    maps = maps_of(scores, layers, row)
    tokens, key_tokens = check_tokens(maps, tokens, key_tokens)
    data = {
        "queries": tokens,
        "keys": key_tokens,
        "layers": [
            {"name": title, "heads": [_encode(of_head) for of_head in of_layer]}
            for title, of_layer in maps.items()
        ],
    }
    text = json.dumps(data, ensure_ascii=False).replace("<", r"\u003c")
    path = pathlib.Path(path)
    page = _HTML.read_text(encoding="utf-8").replace(_DATA, text)
    with atomic_file(path) as temporary:
        pathlib.Path(temporary).write_text(page, encoding="utf-8")
    return path


def _encode(weights):
    """Return weights (T, S) in base64, row after row, as unsigned little-endian numbers."""
    steps = np.rint(np.minimum(weights, 1) * _STEPS).astype("<u2")
    return base64.b64encode(steps.tobytes()).decode("ascii")
