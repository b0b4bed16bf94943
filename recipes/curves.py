"""Curves of several runs in one picture."""

from keras_attn.ops.atomic_files import atomic_file


def draw_curves(path, curves, label, title=None):
    """Draws values over epochs into a PNG file, which appears complete or not at all.

    Args:
        path: str.
        curves: dict of name to a value for each epoch.
        label: str. What the values are.
        title: str.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for name, values in curves.items():
        axes.plot(range(1, len(values) + 1), values, ".-", label=name)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel="epoch", ylabel=label, title=title)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper")  # many lines leave no room among them
    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=120)
