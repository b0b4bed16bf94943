"""Lines over lengths and positions, as PNG."""

from keras_attn.ops.atomic_files import atomic_file


def draw_lines(path, lines, xlabel, ylabel, mark=None):
    """Draws lines into a file, which appears complete or not at all.

    Args:
        path: str.
        lines: dict of label to dict of x to y.
        xlabel, ylabel: str.
        mark: optional x and its label, drawn as a vertical line.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for label, points in lines.items():
        axes.plot(list(points), list(points.values()), ".-", label=label)
    if mark is not None:
        axes.axvline(mark[0], color="0.6", linestyle="--", label=mark[1])
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.set_ylim(bottom=0)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend()
    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=120)
    plt.close(figure)
