"""Entropy and mean distance of heads, as a table and as a picture."""

import dataclasses

import numpy as np

from keras_attn.viz.attention_maps import maps_of
from keras_attn.viz.figure import new_figure


@dataclasses.dataclass(frozen=True)
class Head:
    """Means of one head over the queries that attend to anything.

    Attributes:
        layer: string. Path of the layer, with the step if it runs more than once.
        head: int. Number of the head.
        entropy: float. Bits: 0 if each query attends to one key, log2 S if to all S alike.
        distance: float. Mean number of positions from query to key; None if the layer has more
            queries than keys, or attends to another sequence.
    """

    layer: str
    head: int
    entropy: float
    distance: float | None


class HeadSummary(list):
    """A list of `Head`s, which prints as a table."""

    def __str__(self):
        rows = [("layer", "head", "entropy", "distance")]
        for head in self:
            distance = "-" if head.distance is None else f"{head.distance:.2f}"
            rows.append((head.layer, str(head.head), f"{head.entropy:.2f}", distance))
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = (
            [row[0].ljust(widths[0]), *(x.rjust(w) for x, w in zip(row[1:], widths[1:]))]
            for row in rows
        )
        return "\n".join("  ".join(line) for line in lines)


def summarize_heads(scores, layers=None):
    """Return entropy and mean distance of each head, a list that prints as a table.

        entropy = mean_i sum_j -p_ij log2 p_ij,   distance = mean_i sum_j p_ij |i + S - T - j|

    Means are over the queries of all rows of the batch; p is a row of scores, divided by its sum.
    Queries count as the last T of S positions. Queries that attend to nothing are left out.

    Args:
        scores, layers: as `keras_attn.viz.plot_attention`. Layers whose path ends with a name that
            begins with "cross" attend to another sequence.

    Returns:
        A list of objects with `layer`, `head`, `entropy` in bits, and `distance` in positions.

    Raises:
        ValueError: if `scores` are empty or of another shape, or `layers` names none.

    Example:
        >>> import numpy as np
        >>> from keras_attn.viz import summarize_heads
        >>> print(summarize_heads({"attention": np.full((1, 1, 2, 2), 0.5)}))
        layer      head  entropy  distance
        attention     0     1.00      0.50

    Reference: figures of this kind: [Clark et al., 2019](https://arxiv.org/abs/1906.04341),
        section 3.
    """
    heads = HeadSummary()
    for title, layer_weights in maps_of(scores, layers, row=None).items():
        is_cross = title.split(", ")[0].split("/")[-1].startswith("cross")
        for number in range(layer_weights.shape[-3]):
            weights = layer_weights[..., number, :, :]
            heads.append(Head(title, number, _entropy(weights), _distance(weights, is_cross)))
    return heads


def plot_heads(scores, layers=None):
    """Return a figure of the heads' entropy and distance: a row per layer, a column per head.

    The numbers are those of `summarize_heads`.

    Args:
        scores, layers: as `keras_attn.viz.plot_attention`.

    Raises:
        ValueError: if `scores` are empty or of another shape, or `layers` names none.
        ImportError: if Matplotlib is not installed.

    Example:
        >>> import numpy as np
        >>> from keras_attn.viz import plot_heads
        >>> figure = plot_heads({"attention": np.full((1, 3, 2, 2), 0.5)})
        >>> figure.axes[0].images[0].get_array().tolist()
        [[1.0, 1.0, 1.0]]
    """
    heads = summarize_heads(scores, layers)
    titles = list(dict.fromkeys(head.layer for head in heads))
    count = max(head.head for head in heads) + 1
    longest = max(len(title) for title in titles)
    figure = new_figure(2 * (0.45 * count + 1.2) + 0.08 * longest, 0.32 * len(titles) + 1.1)
    for axes, name, unit in zip(
        figure.subplots(1, 2), ("entropy", "distance"), ("bits", "positions"), strict=True
    ):
        table = np.full((len(titles), count), np.nan)
        for head in heads:
            value = getattr(head, name)
            table[titles.index(head.layer), head.head] = np.nan if value is None else value
        if np.isnan(table).all():  # no head has a distance
            axes.axis("off")
            continue
        image = axes.imshow(table, cmap="viridis", vmin=0, aspect="auto")
        axes.set(title=f"{name} ({unit})", xlabel="head", xticks=range(count))
        axes.set_yticks(range(len(titles)), titles if name == "entropy" else [])
        figure.colorbar(image, ax=axes)
    return figure


def _shares(weights):
    """Return the rows (..., S) of some weights that are not empty, each divided by its sum."""
    rows = weights.reshape(-1, weights.shape[-1]).astype("float64")
    sums = rows.sum(axis=1)
    return np.flatnonzero(sums > 0), rows[sums > 0] / sums[sums > 0, None]


def _entropy(weights):
    _, shares = _shares(weights)
    logs = np.log2(shares, where=shares > 0, out=np.zeros_like(shares))
    return float((shares * -logs).sum(axis=1).mean()) if len(shares) else 0.0  # and not -0.0


def _distance(weights, is_cross):
    length, num_keys = weights.shape[-2:]
    if is_cross or length > num_keys:
        return None
    numbers, shares = _shares(weights)
    queries = numbers % length + num_keys - length
    distances = abs(queries[:, None] - np.arange(num_keys))
    return float((shares * distances).sum(axis=1).mean()) if len(shares) else 0.0
