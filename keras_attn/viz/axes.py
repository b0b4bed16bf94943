"""Picture of the axes and their values."""

from importlib import import_module
from operator import attrgetter

from keras_attn.viz.figure import new_figure


def _classes(package, names):
    """Return the label of each class of a package, and the name of the class in keras_attn."""
    return [(name, f"{package}.{name}") for name in names.split()]


# Axis, its question, and its values: a label and a name in keras_attn that exists if it works.
AXES = (
    (
        "score",
        "how alike are a query and a key?",
        _classes("scores", "DotProduct Additive Relative LearnedRelative SharedQK"),
    ),
    (
        "pattern",
        "which keys may a query attend to?",
        [
            *_classes("patterns", "Dense Causal Local BlockLocal1D BlockLocal2D Strided Fixed"),
            *_classes("patterns", "AdaptiveSpan LSH"),
            ("p & q | r", "patterns.Pattern.__and__"),
            ("PerHead", "patterns.PerHead"),
        ],
    ),
    (
        "position",
        "where am I?",
        _classes("positions", "Sinusoidal Learned Axial ImageCoordinates Timestep Rotary"),
    ),
    ("residual", "how is a sublayer wrapped?", _classes("residuals", "PostNorm PreNorm Gate")),
    (
        "depth",
        "how are blocks repeated?",
        _classes("depth", "Stack Recurrent ACT ACTCell ACTRNN Reversible"),
    ),
    (
        "memory",
        "what survives a call?",
        _classes("memory", "KVCache SegmentMemory StatefulSegments"),
    ),
    (
        "loss",
        "what is learned from?",
        [
            ("label-smoothed", "losses.LabelSmoothedCrossentropy"),
            ("auxiliary", "losses.AuxiliaryLosses"),
            ("ponder", "depth.ACT"),
            ("span", "patterns.AdaptiveSpan"),
            ("adaptive softmax", "layers.AdaptiveSoftmax"),
            ("mixture of logistics", "losses.MixtureOfLogistics"),
        ],
    ),
)

# All coordinates are points, so that the width of monospaced text is known in advance.
WIDTH, LEFT, RIGHT = 760, 14, 240
FONT_SIZE, CHARACTER = 11, 11 * 0.602
BOX_PADDING, GAP, LINE = 6, 9, 31
MARGIN, ROW_PADDING = 6, 13
INK, FAINT, RULE, PAPER = "#1f3a5f", "#7a8794", "#d9dee3", "white"


def works(name):
    """Return True if this version of keras_attn has `name`, such as `patterns.Causal`."""
    package, path = name.split(".", 1)
    try:
        attrgetter(path)(import_module(f"keras_attn.{package}"))
    except (ModuleNotFoundError, AttributeError):
        return False
    return True


def working_values():
    """Return `"axis: value"` for every value of an axis that this version has."""
    return [f"{axis}: {label}" for axis, _, values in AXES for label, name in values if works(name)]


def _place(values):
    """Return (label, name, x, line) of every box, in lines from left to right."""
    placed, x, line = [], RIGHT, 0
    for label, name in values:
        width = len(label) * CHARACTER + 2 * BOX_PADDING
        if x + width > WIDTH - LEFT:
            x, line = RIGHT, line + 1
        placed.append((label, name, x, line))
        x += width + GAP
    return placed


def _draw_box(axes, label, x, y, filled):
    ink, edge, paper, line = (
        (PAPER, INK, INK, "-") if filled else (FAINT, FAINT, PAPER, (0, (3, 2)))
    )
    style = f"round,pad={BOX_PADDING / FONT_SIZE},rounding_size=0.4"
    box = {"boxstyle": style, "facecolor": paper, "edgecolor": edge, "linestyle": line}
    font = {"family": "monospace", "size": FONT_SIZE, "color": ink, "va": "center"}
    axes.text(x + BOX_PADDING, y, label, bbox={**box, "linewidth": 0.9}, **font)


def plot_axes():
    """Return a figure of the axes, their questions and their values; existing values are filled.

    Raises:
        ImportError: if Matplotlib is not installed.

    Example:

    >>> from keras_attn.viz import plot_axes
    >>> "pattern" in [text.get_text() for text in plot_axes().axes[0].texts]
    True
    """
    rows = [(axis, question, _place(values)) for axis, question, values in AXES]
    heights = [2 * ROW_PADDING + (boxes[-1][3] + 1) * LINE for _, _, boxes in rows]
    height = sum(heights) + MARGIN + 46

    figure = new_figure(WIDTH / 72, height / 72)
    figure.set_layout_engine("none")
    axes = figure.add_axes([0, 0, 1, 1])
    axes.set(xlim=(0, WIDTH), ylim=(height, 0))
    axes.axis("off")

    top = MARGIN
    for (axis, question, boxes), row_height in zip(rows, heights):
        middle = top + row_height / 2
        axes.text(LEFT, middle - 8, axis, size=15, weight="bold", color=INK, va="center")
        axes.text(LEFT, middle + 11, question, size=11, color=FAINT, va="center")
        for label, name, x, line in boxes:
            y = top + ROW_PADDING + (line + 0.5) * LINE
            _draw_box(axes, label, x, y, works(name))
        top += row_height
        axes.plot([LEFT, WIDTH - LEFT], [top, top], color=RULE, linewidth=0.8)

    _draw_box(axes, "works today", RIGHT, top + 24, filled=True)
    _draw_box(axes, "planned", RIGHT + 110, top + 24, filled=False)
    return figure
