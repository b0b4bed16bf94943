"""The picture of the README."""

from pathlib import Path

from keras_attn.viz.axes import plot_axes, values_by_axis


def write_picture(folder):
    """Write `axes.png` to `folder`."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # The metadata lists the values in the picture, so that a test can detect an outdated one.
    plot_axes().savefig(
        folder / "axes.png", dpi=80, metadata={"Description": "\n".join(values_by_axis())}
    )
