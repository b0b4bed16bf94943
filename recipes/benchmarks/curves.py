"""Cost over size: the power law that fits it, and its picture."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

MARKERS = "osD^vPX*<>"


def exponent(points):
    """The exponent p of the power law c size^p nearest to the points.

    Args:
        points: dict of size to cost, at least two.

    Returns:
        float, by least squares over the logarithms.
    """
    sizes, costs = np.log(list(points)), np.log(list(points.values()))
    return float(np.polyfit(sizes, costs, 1)[0])


def draw(panels, path, bold="", label="milliseconds", factor=1e3):
    """Draw curves with logarithmic axes into a PNG file.

    Args:
        panels: dict of (title, label of the sizes) to curves, a dict of name to points, a dict of
            size to cost.
        path: where to.
        bold: string. Curves whose name begins with it are drawn bold, the others dashed.
        label: string. Label of the costs: `factor` times the cost.
        factor: float.
    """
    panels = {key: curves for key, curves in panels.items() if any(curves.values())}
    if not panels:
        return
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(5.6 * columns, 4.4 * rows), layout="constrained")
    for place, ((title, sizes_label), curves) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(rows, columns, place)
        for index, (name, points) in enumerate(curves.items()):
            points = dict(sorted(points.items()))
            stands_out = name.startswith(bold)
            if len(points) > 1:
                name = f"{name} (power {exponent(points):.2f})"
            axes.loglog(
                list(points),
                [factor * cost for cost in points.values()],
                linestyle="-" if stands_out else "--",
                linewidth=2 if stands_out else 1,
                marker=MARKERS[index % len(MARKERS)],
                markersize=5,
                label=name,
            )
        sizes = sorted({size for points in curves.values() for size in points})
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes], minor=False)
        axes.set_xticks([], minor=True)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set(title=title, xlabel=sizes_label, ylabel=label)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    figure.savefig(path, dpi=120)
