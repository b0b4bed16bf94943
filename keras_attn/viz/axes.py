"""Picture of the axes and their values."""

from importlib import import_module

from keras_attn.viz.figure import new_figure

# Axis, its question, and its values: a label and a name in keras_attn that exists if it works.
AXES = (
    (
        "score",
        "how alike are a query and a key?",
        (
            ("DotProduct", "scores.DotProduct"),
            ("Additive", "scores.Additive"),
            ("Relative", "scores.Relative"),
            ("LearnedRelative", "scores.LearnedRelative"),
            ("SharedQK", "scores.SharedQK"),
        ),
    ),
    (
        "pattern",
        "which keys may a query attend to?",
        (
            ("Dense", "patterns.Dense"),
            ("Causal", "patterns.Causal"),
            ("Local", "patterns.Local"),
            ("BlockLocal1D", "patterns.BlockLocal1D"),
            ("BlockLocal2D", "patterns.BlockLocal2D"),
            ("Strided", "patterns.Strided"),
            ("Fixed", "patterns.Fixed"),
            ("AdaptiveSpan", "patterns.AdaptiveSpan"),
            ("LSH", "patterns.LSH"),
            ("p & q | r", "patterns.Pattern.__and__"),
            ("PerHead", "patterns.PerHead"),
        ),
    ),
    (
        "position",
        "where am I?",
        (
            ("Sinusoidal", "positions.Sinusoidal"),
            ("Learned", "positions.Learned"),
            ("Axial", "positions.Axial"),
            ("ImageCoordinates", "positions.ImageCoordinates"),
            ("Timestep", "positions.Timestep"),
            ("Rotary", "positions.Rotary"),
        ),
    ),
    (
        "residual",
        "how is a sublayer wrapped?",
        (
            ("PostNorm", "residuals.PostNorm"),
            ("PreNorm", "residuals.PreNorm"),
            ("Gate", "residuals.Gate"),
        ),
    ),
    (
        "depth",
        "how are blocks repeated?",
        (
            ("Stack", "depth.Stack"),
            ("Recurrent", "depth.Recurrent"),
            ("ACT", "depth.ACT"),
            ("ACTCell", "depth.ACTCell"),
            ("ACTRNN", "depth.ACTRNN"),
            ("Reversible", "depth.Reversible"),
        ),
    ),
    (
        "memory",
        "what survives a call?",
        (
            ("KVCache", "memory.KVCache"),
            ("SegmentMemory", "memory.SegmentMemory"),
            ("StatefulSegments", "memory.StatefulSegments"),
        ),
    ),
    (
        "loss",
        "what is learned from?",
        (
            ("label-smoothed", "losses.LabelSmoothedCrossentropy"),
            ("auxiliary", "losses.AuxiliaryLosses"),
            ("ponder", "depth.ACT"),
            ("span", "patterns.AdaptiveSpan"),
            ("adaptive softmax", "layers.AdaptiveSoftmax"),
            ("mixture of logistics", "losses.MixtureOfLogistics"),
        ),
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
    module, *attributes = name.split(".")
    try:
        value = import_module(f"keras_attn.{module}")
        for attribute in attributes:
            value = getattr(value, attribute)
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
    axes.text(
        x + BOX_PADDING,
        y,
        label,
        family="monospace",
        size=FONT_SIZE,
        color=PAPER if filled else FAINT,
        va="center",
        bbox={
            "boxstyle": f"round,pad={BOX_PADDING / FONT_SIZE},rounding_size=0.4",
            "facecolor": INK if filled else PAPER,
            "edgecolor": INK if filled else FAINT,
            "linestyle": "-" if filled else (0, (3, 2)),
            "linewidth": 0.9,
        },
    )


def plot_axes():
    """Plot the axes, their questions and their values; existing values are filled.

    The existing values are those that the installed package has.

    Returns:
        A `matplotlib.figure.Figure`; `.savefig("axes.png")` writes it.

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

    for label, x, filled in (("works today", RIGHT, True), ("planned", RIGHT + 110, False)):
        _draw_box(axes, label, x, top + 24, filled)
    return figure
