"""Pictures of results, as PNG files."""

import math

import numpy as np

from keras_attn.files import atomic_file

# In pixels: the size to which a small image is enlarged at least, and the gap around it.
LEAST_SIZE, GAP = 48, 4


def new_axes(size=(6.4, 3.6)):
    """Return a figure and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.add_subplot()


def save(figure, path):
    """Write a figure atomically, in 256 colors, which need a third of the bytes."""
    from PIL import Image

    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=120)
        Image.open(temporary).convert("RGB").quantize().save(temporary, "PNG")


def draw_lines(path, lines, xlabel, ylabel, mark=None):
    """Draw lines, a dict of label to dict of x to y, from 0 up.

    `mark` is an x and its label, drawn as a vertical line.
    """
    figure, axes = new_axes()
    for label, points in lines.items():
        axes.plot(list(points), list(points.values()), ".-", label=label)
    if mark is not None:
        axes.axvline(mark[0], color="0.6", linestyle="--", label=mark[1])
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.set_ylim(bottom=0)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend()
    save(figure, path)


def draw_curves(path, curves, label, title=None):
    """Draw curves of several runs, a dict of name to a value, or None, for each epoch.

    A line joins the epochs that have a value: not all are validated.
    """
    figure, axes = new_axes((8.4, 4.2))
    for name, values in curves.items():
        points = np.array(values, "float64")  # None is NaN
        epochs = np.flatnonzero(~np.isnan(points))
        axes.plot(epochs + 1, points[epochs], ".-", label=name)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel="epoch", ylabel=label, title=title)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper")  # many lines leave no space among them
    save(figure, path)


def draw_training(rows, metric, path):
    """Draw losses and a validation metric over the epochs of a run's history, a list of dicts.

    A metric that follows from the validation loss alone has no curve of its own.
    """
    figure, left = new_axes()
    for name, label in (("loss", "training loss"), ("val_loss", "validation loss")):
        if points := _points(rows, name):
            left.plot(*zip(*points), ".-", label=label)
    left.set_xlabel("epoch")
    left.xaxis.get_major_locator().set_params(integer=True)
    left.set_ylabel("loss")
    if (points := _points(rows, metric)) and _says_more(points, _points(rows, "val_loss")):
        right, label = left.twinx(), metric.replace("_", " ")
        right.plot(*zip(*points), "o-", color="tab:green", markersize=3, label=label)
        right.set_ylabel(label)
    figure.legend(loc="outside upper center", ncols=3, frameon=False)  # no curve is below it
    save(figure, path)


def _points(rows, name):
    """Return pairs of epoch and value, of the epochs that have one: not all are validated."""
    points = ((row["epoch"] + 1, row.get(name)) for row in rows)
    return [(epoch, value) for epoch, value in points if isinstance(value, float)]


def _says_more(points, losses):
    """Return True unless a metric is the loss, in bits or not, or the loss's perplexity."""
    epochs = dict(losses)
    pairs = [(value, epochs[epoch]) for epoch, value in points if epoch in epochs]
    if len(pairs) < len(points):
        return True
    values, loss_values = np.array(pairs, "float64").T
    with np.errstate(over="ignore"):
        known = loss_values, loss_values / math.log(2), np.exp(loss_values)
    return not any(np.allclose(values, x, rtol=1e-3, equal_nan=True) for x in known)


def write_image_grid(images, num_values, path, columns=None):
    """Write images (N, H, W, 1 or 3) of the values 0 .. `num_values` - 1 in rows."""
    from matplotlib.image import imsave

    with atomic_file(path) as temporary:
        imsave(temporary, image_grid(images, num_values, columns))


def image_grid(images, num_values, columns=None):
    """Return one picture of all images, uint8 (H, W, 3); by default it is nearly square."""
    images = np.round(np.asarray(images) * (255 / (num_values - 1))).astype("uint8")
    number, height, width, channels = images.shape
    enlarged = max(1, -(-LEAST_SIZE // max(height, width)))
    images = images.repeat(enlarged, axis=1).repeat(enlarged, axis=2)
    columns = columns or math.ceil(math.sqrt(number))
    rows = -(-number // columns)
    tile = height * enlarged + GAP, width * enlarged + GAP
    picture = np.full((rows * tile[0] + GAP, columns * tile[1] + GAP, 3), 128, "uint8")
    for index, image in enumerate(images):
        top, left = GAP + index // columns * tile[0], GAP + index % columns * tile[1]
        picture[top : top + image.shape[0], left : left + image.shape[1]] = image
    return picture
