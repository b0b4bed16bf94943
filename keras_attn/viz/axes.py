"""Picture of the axes and their values."""

from keras_attn.viz.figure import new_figure

# Axis, its question, and the labels of its values.
AXES = (
    (
        "score",
        "how alike are a query and a key?",
        (
            *("DotProduct", "Additive", "Relative", "LearnedRelative", "Disentangled", "SharedQK"),
            *("Cosine", "Kernel", "FAVOR", "s + bias", "ALiBi", "T5Bias", "SoftCap"),
        ),
    ),
    (
        "pattern",
        "which keys may a query attend to?",
        (
            *("Dense", "Causal", "Local", "BlockLocal1D", "BlockLocal2D", "Strided", "Fixed"),
            *("Dilated", "Global", "Prefix", "Random", "Sinks", "AdaptiveSpan", "LSH", "p & q | r"),
            "PerHead",
        ),
    ),
    (
        "position",
        "where am I?",
        (
            *("Sinusoidal", "Learned", "Axial", "ImageCoordinates", "Timestep", "Rotary"),
            *("AxialRotary", "YaRN", "NTK", "Interpolation", "Llama3", "LongRoPE"),
        ),
    ),
    ("norm", "how large are the numbers?", ("LayerNorm", "RMSNorm", "BatchNorm", "DyT", "none")),
    (
        "residual",
        "how is a sublayer wrapped?",
        (
            *("PostNorm", "PreNorm", "OutputNorm", "SandwichNorm", "DeepNorm"),
            *("ReZero", "LayerScale", "Gate", "parallel"),
        ),
    ),
    (
        "feed-forward",
        "what is computed at each position?",
        ("FeedForward", "GatedFeedForward", "MixtureOfExperts", "SeparableConvTransition"),
    ),
    (
        "depth",
        "how are blocks repeated?",
        ("Stack", "Recurrent", "ACT", "ACTCell", "ACTRNN", "Reversible", "Latents"),
    ),
    (
        "memory",
        "what survives a call?",
        ("KVCache", "SegmentMemory", "CompressiveMemory", "KNNMemory", "StatefulSegments"),
    ),
    (
        "loss",
        "what is learned from?",
        (
            *("label-smoothed", "auxiliary", "ponder", "span"),
            *("adaptive softmax", "mixture of logistics", "contrastive", "distillation"),
        ),
    ),
)

# All coordinates are points, so that the width of monospaced text is known in advance.
WIDTH, LEFT, RIGHT = 760, 14, 240
FONT_SIZE, CHARACTER = 11, 11 * 0.602
BOX_PADDING, GAP, LINE = 6, 9, 31
MARGIN, ROW_PADDING = 6, 13
INK, FAINT, RULE, PAPER = "#1f3a5f", "#7a8794", "#d9dee3", "white"


def values_by_axis():
    """Return `"axis: value"` for every value in the picture."""
    return [f"{axis}: {label}" for axis, _, labels in AXES for label in labels]


def _place(labels):
    """Return (label, x, line) of every box, in lines from left to right."""
    placed, x, line = [], RIGHT, 0
    for label in labels:
        width = len(label) * CHARACTER + 2 * BOX_PADDING
        if x + width > WIDTH - LEFT:
            x, line = RIGHT, line + 1
        placed.append((label, x, line))
        x += width + GAP
    return placed


def _draw_box(axes, label, x, y):
    style = f"round,pad={BOX_PADDING / FONT_SIZE},rounding_size=0.4"
    box = {"boxstyle": style, "facecolor": INK, "edgecolor": INK, "linewidth": 0.9}
    font = {"family": "monospace", "size": FONT_SIZE, "color": PAPER, "va": "center"}
    axes.text(x + BOX_PADDING, y, label, bbox=box, **font)


def plot_axes():
    """Return a figure of the axes, their questions and their values.

    Raises:
        ImportError: if Matplotlib is not installed.

    Example:
        >>> from keras_attn.viz import plot_axes
        >>> "pattern" in [text.get_text() for text in plot_axes().axes[0].texts]
        True
    """
    rows = [(axis, question, _place(labels)) for axis, question, labels in AXES]
    heights = [2 * ROW_PADDING + (boxes[-1][2] + 1) * LINE for _, _, boxes in rows]
    height = sum(heights) + 2 * MARGIN

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
        for label, x, line in boxes:
            _draw_box(axes, label, x, top + ROW_PADDING + (line + 0.5) * LINE)
        top += row_height
        axes.plot([LEFT, WIDTH - LEFT], [top, top], color=RULE, linewidth=0.8)
    return figure
