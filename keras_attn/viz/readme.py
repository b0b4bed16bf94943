"""Pictures of the README."""

from pathlib import Path

from keras_attn.viz import plot_axes, plot_patterns, plot_sinusoids
from keras_attn.viz.axes import values_by_axis


def write_pictures(folder):
    """Write `axes.png`, `patterns.png` and `sinusoids.png` to `folder`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # The metadata lists the values in the picture, so that a test can detect an outdated one.
    plot_axes().savefig(
        folder / "axes.png", dpi=120, metadata={"Description": "\n".join(values_by_axis())}
    )
    plot_patterns().savefig(folder / "patterns.png", dpi=80)
    plot_sinusoids().savefig(folder / "sinusoids.png", dpi=120)
