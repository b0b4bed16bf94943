"""Cost over size: the power law that fits it, and its picture."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

MARKERS = "osD^vPX*<>"


def exponent(points):
    """The exponent p of the power law c size^p nearest to the points, a dict of size to cost.

    It needs two points, and is that of least squares over the logarithms.
    """
    sizes, costs = np.log(list(points)), np.log(list(points.values()))
    return float(np.polyfit(sizes, costs, 1)[0])


def draw(panels, path, bold="", label="milliseconds", factor=1e3):
    """Draw curves with logarithmic axes into a PNG file.

    Args:
        panels: dict of (title, label of the sizes) to curves, a dict of name to points, a dict of
            size to cost.
        path: string.
        bold: string. Curves whose name begins with it are drawn bold, the others dashed.
        label, factor: string and float. What is drawn is `factor` times the cost.
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
            power = f" (power {exponent(points):.2f})" if len(points) > 1 else ""
            line, width = ("-", 2) if name.startswith(bold) else ("--", 1)
            line += MARKERS[index % len(MARKERS)]
            costs = [factor * cost for cost in points.values()]
            how = {"linewidth": width, "markersize": 5, "label": f"{name}{power}"}
            axes.loglog(list(points), costs, line, **how)
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
