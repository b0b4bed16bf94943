"""Pictures and a page of attention scores over tokens."""

import base64
import json
import pathlib

import numpy as np

from keras_attn.files import atomic_file
from keras_attn.ops.shapes import ceil_div
from keras_attn.viz.attention_maps import check_tokens, choose_head, maps_of
from keras_attn.viz.figure import families_for, new_figure, shown, write_names

# Inches of a token, of the smallest and the largest panel.
TOKEN, SMALLEST, LARGEST = 0.19, 1.5, 9.0
MOST_CELLS = 400  # along an axis: more would be thinner than a pixel


def plot_attention(scores, tokens, key_tokens=None, *, layers=None, head=None, row=0):
    """Return a figure of what each token attends to: a row per query, a column per key.

    One row of panels a layer or step, one panel a head. The shade of a cell is the weight, from 0
    to the largest of the figure. With more than 400 queries or keys a cell shows the largest weight
    of several neighbours, so that none disappears. Names are cut after 24 characters. They may be
    of any script of which this machine has a font; a warning names the characters of which it has
    none. Before version 3.11, Matplotlib sets Hebrew and Arabic from left to right;
    `write_attention_page` does not.

    Args:
        scores: dict from `capture_attention`; or of one layer, an array (B, N, T, S), (N, T, S) or
            (T, S), or a list of them, one a step.
        tokens: list of T strings, the names of the queries.
        key_tokens: list of S strings, the names of the keys; by default `tokens`.
        layers: string. The end of the paths to draw, such as "cross_attention", in which `*` stands
            for any text; by default all layers.
        head: int for one head, "mean" for the mean over the heads; by default all heads.
        row: int. Row of the batch.

    Raises:
        ValueError: if `scores` are empty or of another shape, the numbers of tokens are not T and
            S of every drawn layer, or `layers`, `head` or `row` does not exist.
        ImportError: if Matplotlib is not installed.

    Example:
        >>> import numpy as np
        >>> from keras_attn.viz import plot_attention
        >>> figure = plot_attention(np.eye(3), ["I", "see", "you"])
        >>> [label.get_text() for label in figure.axes[0].get_xticklabels()]
        ['I', 'see', 'you']

    Reference: pictures of this kind: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762),
        figures 3 to 5.
    """
    maps = maps_of(scores, layers, row)
    tokens, key_tokens = check_tokens(maps, tokens, key_tokens)
    panels = {title: choose_head(layer_scores, head) for title, layer_scores in maps.items()}
    figure, grid = _panel_grid(panels, tokens, key_tokens)
    rotation = 90 if max(map(len, key_tokens), default=0) > 2 else 0
    most = max(float(weights.max()) for heads in panels.values() for _, weights in heads)
    families = families_for([shown(name) for name in [*tokens, *key_tokens]])
    for line, (title, heads) in enumerate(panels.items()):
        for column, (axes, (name, weights)) in enumerate(zip(grid[line], heads)):
            image = _draw_weights(axes, weights, most or 1)
            lines = [title, name] if column == 0 else [name]
            axes.set_title("\n".join(filter(None, lines)), size=8, loc="left")
            is_lowest = all(len(below) <= column for below in list(panels.values())[line + 1 :])
            write_names(axes.xaxis, key_tokens if is_lowest else [], families, rotation=rotation)
            write_names(axes.yaxis, tokens if column == 0 else [], families)
        for axes in grid[line][len(heads) :]:
            axes.axis("off")
    grid[-1][0].set(xlabel="key", ylabel="query")
    figure.colorbar(image, ax=grid, label="weight", fraction=0.03, aspect=30)
    return figure


def _panel_grid(panels, tokens, key_tokens):
    """Return a figure and its axes (panels, heads), as large as the tokens need."""
    columns = max(len(heads) for heads in panels.values())
    width, height = (
        min(max(TOKEN * len(names), SMALLEST), LARGEST) for names in (key_tokens, tokens)
    )
    longest = max(len(name) for name in [*tokens, *key_tokens, ""])
    margin = 0.8 + 0.09 * min(longest, 20)
    figure = new_figure(columns * (width + 0.2) + margin, len(panels) * (height + 0.4) + margin)
    return figure, figure.subplots(len(panels), columns, squeeze=False)


def _draw_weights(axes, weights, most):
    cells, extent = _cells(weights)
    image = axes.imshow(
        cells, cmap="Blues", vmin=0, vmax=most, interpolation="nearest", extent=extent
    )
    length, num_keys = weights.shape
    axes.set(aspect="auto", xlim=(-0.5, num_keys - 0.5), ylim=(length - 0.5, -0.5))
    return image


def _cells(weights):
    """Return the largest weight of each cell, and where they are: left, right, below, above."""
    ends = []
    for axis, length in enumerate(weights.shape):
        step = ceil_div(length, MOST_CELLS)
        weights = np.maximum.reduceat(weights, range(0, length, step), axis=axis)
        ends.append(weights.shape[axis] * step - 0.5)
    return weights, (-0.5, ends[1], ends[0], -0.5)


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
            {"name": title, "heads": [_encode(head) for head in weights]}
            for title, weights in maps.items()
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
