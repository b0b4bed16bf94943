"""Picture of the sinusoid table."""

from keras import ops

from keras_attn.ops.checks import check_choice, check_positive, check_sizes
from keras_attn.ops.sinusoids import LAYOUTS, sinusoids
from keras_attn.viz.figure import new_figure


def plot_sinusoids(num_positions=32, hidden_dim=128, layout="interleaved", max_wavelength=10000):
    """Return a figure of the sinusoid table, a row per position and a column per dimension.

        PE[p, 2i] = sin(p / 10000^(2i/D)),  PE[p, 2i+1] = cos(p / 10000^(2i/D))

    These are the defaults; another layout has the sines and cosines in other columns.

    Args:
        num_positions: int. Number of positions (rows), counted from 0.
        hidden_dim: int. Hidden size D (columns).
        layout, max_wavelength: as `keras_attn.positions.Sinusoidal`.

    Raises:
        ValueError: if an argument is out of range, or the layout is unknown.
        ImportError: if Matplotlib is not installed.

    Example:
        >>> from keras_attn.viz import plot_sinusoids
        >>> figure = plot_sinusoids(num_positions=8, hidden_dim=16)
        >>> figure.axes[0].images[0].get_array().shape
        (8, 16)

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 3.5.
    """
    check_sizes(num_positions=num_positions, hidden_dim=hidden_dim)
    check_choice(LAYOUTS, layout=layout)
    check_positive(max_wavelength=max_wavelength)
    figure = new_figure(10, 3.4)
    table = sinusoids(ops.arange(num_positions), hidden_dim, layout, max_wavelength)
    axes = figure.subplots()
    shades = {"cmap": "RdBu", "vmin": -1, "vmax": 1, "interpolation": "nearest"}
    image = axes.imshow(ops.convert_to_numpy(table), aspect="auto", **shades)
    axes.set(xlabel="dimension", ylabel="position")
    figure.colorbar(image, ax=axes, ticks=[-1, 0, 1], pad=0.01)
    return figure
