"""Pictures of patterns as matrices of queries and keys."""

import math
import textwrap

import keras
import numpy as np
from keras import ops

from keras_attn import patterns
from keras_attn.attention.inputs import AttentionInputs, PositionRange
from keras_attn.ops.checks import check_shape, check_sizes, check_that
from keras_attn.ops.images import integers
from keras_attn.patterns.combined import Combined
from keras_attn.scores import SharedQK
from keras_attn.viz.figure import new_figure

# Up to this length the cells of a picture have edges.
LONGEST_GRID = 64
EDGE = "#d9dee3"


def plot_pattern(pattern, length=None, vectors=None, inputs=None, image_shape=None, pixels=None):
    """Return a figure of the allowed pairs: a row per query, a column per key, a panel per head.

    An allowed pair is dark, a forbidden pair white. The shade of a soft pattern, such as a built
    `AdaptiveSpan`, is the factor of the pair's weight. With an `image_shape` there is a panel per
    head and pixel in place: the image, whose dark pixels are those that the framed one attends to.

    Args:
        pattern: name or object of the pattern axis.
        length: int. Number of positions T, of queries and keys alike; may be left out with
            `image_shape`.
        vectors: (T, H), the keys, for a pattern that depends on them, such as `LSH`; by default
            random.
        inputs: (T, D), the layer's inputs, for an `AdaptiveSpan(dynamic=True)`, whose spans depend
            on them.
        image_shape: (height, width) of an image whose pixels are the positions, in raster order,
            and for `BlockLocal2D` in that of its blocks.
        pixels: list of (row, column) of the queries to draw; by default four.

    Raises:
        ValueError: if the pattern has weights and is not built, a dynamic span gets no `inputs`,
            the number of `vectors` or `inputs` is not `length`, or the image is not that of the
            pattern.
        ImportError: if Matplotlib is not installed.

    Example:
        >>> from keras_attn.patterns import Local
        >>> from keras_attn.viz import plot_pattern
        >>> plot_pattern(Local(2), 3).axes[0].images[0].get_array().data.astype(int)
        array([[1, 0, 0],
               [1, 1, 0],
               [0, 1, 1]])

    Reference: pictures of this kind: [Child et al., 2019](https://arxiv.org/abs/1904.10509),
        figure 3.
    """
    pattern = patterns.get(pattern)
    if image_shape is None:
        check_that(pixels is None, "None without `image_shape`", pixels=pixels)
    else:
        image_shape = check_image_shape(image_shape, length)
        length = math.prod(image_shape)
        pixels, order = check_pixels(pixels, image_shape), raster_order(pattern, image_shape)
    heads = pair_weights(pattern, length, vectors, inputs)
    titles = [_head_title(pattern, number, len(heads)) for number in range(len(heads))]
    if image_shape is not None:
        return _pixel_figure(heads, titles, pixels, order, image_shape)
    figure = new_figure(3.4 * len(heads), 3.8)
    panels = figure.subplots(1, len(heads), squeeze=False)[0]
    for axes, weights, title in zip(panels, heads, titles, strict=True):
        _draw(axes, weights, title)
    return figure


def plot_patterns(length=24):
    """Return a figure with an example of every pattern, for the README.

    Args:
        length: int. Number of positions T, at most 24.

    Raises:
        ImportError: if Matplotlib is not installed.

    Example:
        >>> from keras_attn.viz import plot_patterns
        >>> plot_patterns(8).axes[0].get_title()
        'Dense()'
    """
    figure = new_figure(15.6, 11.7)
    panels = figure.subplots(4, 6).flat
    for title, pattern in examples():
        heads = pair_weights(pattern, length)
        for number, weights in enumerate(heads):
            _draw(next(panels), weights, title if len(heads) == 1 else f"{title}, head {number}")
    return figure


def examples():
    """Return (source code, pattern) of every pattern, with 24 heads in total."""
    span = patterns.AdaptiveSpan(24, ramp=8)
    span.build((None, 1, None, None))
    span.span.assign([0.2])
    return [
        ("Dense()", patterns.Dense()),
        ("Causal()", patterns.Causal()),
        ("Local(6)", patterns.Local(6)),
        ("Local(6, causal=False)", patterns.Local(6, causal=False)),
        ("BlockLocal1D(6, lookback=4)", patterns.BlockLocal1D(6, lookback=4)),
        (
            "BlockLocal2D((4, 6), (2, 3), flange=(1, 1))",
            patterns.BlockLocal2D((4, 6), (2, 3), (1, 1)),
        ),
        ("Dilated(4, 3)", patterns.Dilated(4, 3)),
        ("Strided(6)", patterns.Strided(6)),
        ("Fixed(6, summary=2)", patterns.Fixed(6, summary=2)),
        ("Global(3)", patterns.Global(3)),
        ("Prefix(8)", patterns.Prefix(8)),
        ("Random(3, 2, 24)", patterns.Random(3, 2, 24)),
        ("Sinks(2, window=6)", patterns.Sinks(2, window=6)),
        ("AdaptiveSpan(24, ramp=8)", span),
        ("LSH(4) of random vectors", patterns.LSH(4)),
        ("LSH(4, num_rounds=4)", patterns.LSH(4, num_rounds=4)),
        ("Local(12) & Fixed(6, summary=2)", patterns.Local(12) & patterns.Fixed(6, summary=2)),
        ("Local(3) | Strided(8, 'column')", patterns.Local(3) | patterns.Strided(8, "column")),
        ("Causal() | Prefix(8)", patterns.Causal() | patterns.Prefix(8)),
        ("Local(6) | Global(2, causal=True)", patterns.Local(6) | patterns.Global(2, causal=True)),
        (
            "Local(3, causal=False) | Global(2)",
            patterns.Local(3, causal=False) | patterns.Global(2),
        ),
        (
            "Local(3, causal=False) | Global(3) | Random(3, 1, 24)",
            patterns.Local(3, causal=False) | patterns.Global(3) | patterns.Random(3, 1, 24),
        ),
        (
            "PerHead([Strided(6, 'local'), Strided(6, 'column')])",
            patterns.PerHead([patterns.Strided(6, "local"), patterns.Strided(6, "column")]),
        ),
    ]


def pair_weights(pattern, length, vectors=None, inputs=None):
    """Return the factor of each pair's weight, (heads, T, T), in [0, 1]."""
    check_sizes(length=length)
    if isinstance(pattern, keras.layers.Layer) and not pattern.built:
        raise ValueError(
            "`pattern` must be built: call the layer that holds it first. "
            f"Received: pattern={pattern!r}."
        )
    if vectors is None:
        vectors = np.random.default_rng(0).standard_normal((length, 16))
    vectors = ops.convert_to_tensor(vectors, "float32")
    check_shape(vectors, "vectors", (length, None))
    if inputs is not None:
        inputs = ops.convert_to_tensor(inputs, "float32")
        check_shape(inputs, "inputs", (length, None))
        inputs = inputs[None]
    elif isinstance(pattern, patterns.AdaptiveSpan) and pattern.dynamic:
        raise ValueError(
            "The spans of `AdaptiveSpan(dynamic=True)` depend on the layer's inputs: pass `inputs` "
            f"of shape ({length}, {pattern.kernel.shape[0]}). Received: inputs=None."
        )
    num_heads = 1
    if isinstance(pattern, patterns.PerHead):
        num_heads = len(pattern.patterns)
    elif isinstance(pattern, patterns.AdaptiveSpan):
        num_heads = (pattern.bias if pattern.dynamic else pattern.span).shape[0]
    vectors = ops.broadcast_to(vectors, (1, num_heads, *vectors.shape))
    positions = PositionRange(0, length)
    heads = AttentionInputs(vectors, vectors, vectors, positions, positions, SharedQK())
    with keras.StatelessScope(collect_losses=True):  # a span's loss is not that of a model here
        mask, bias = pattern.for_call(heads, inputs, None).dense_mask_and_bias(heads)
    shape = num_heads, length, length
    logs = np.zeros(shape) if bias is None else ops.convert_to_numpy(bias)
    if mask is not None:
        logs = np.where(ops.convert_to_numpy(mask), logs, -np.inf)
    logs = np.broadcast_to(logs.reshape(-1, length, length), shape)
    top = np.max(logs, axis=-1, keepdims=True)
    return np.exp(logs - np.where(np.isfinite(top), top, 0))


def _head_title(pattern, number, num_heads):
    own = pattern.patterns[number] if isinstance(pattern, patterns.PerHead) else pattern
    is_only = own is pattern and num_heads == 1
    return repr(pattern) if is_only else f"head {number}: {own!r}"


def _pixel_figure(heads, titles, pixels, order, image_shape):
    figure = new_figure(2.6 * len(pixels), 2.9 * len(heads))
    panels = figure.subplots(len(heads), len(pixels), squeeze=False)
    for row, weights, title in zip(panels, heads, titles, strict=True):
        for axes, pixel in zip(row, pixels, strict=True):
            draw_pixel(axes, weights, pixel, order, image_shape)
        row[0].set_title(textwrap.fill(title, 28), size=8.5, family="monospace")
    return figure


def _draw(axes, weights, title):
    length = len(weights)
    axes.imshow(weights, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    axes.set_title(textwrap.fill(title, 28), size=8.5, family="monospace")
    ticks = range(0, length, max(1, length // 4))
    axes.set(xlabel="key", ylabel="query", xticks=ticks, yticks=ticks)
    if length <= LONGEST_GRID:
        edges = np.arange(length + 1) - 0.5
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_ticks(edges, minor=True)
        axes.tick_params(which="minor", length=0)
        axes.grid(which="minor", color=EDGE, linewidth=0.5)


QUERY = "#e4572e"


def check_image_shape(image_shape, length):
    """Return `image_shape` as two ints, whose product is `length` unless that is None."""
    image_shape = integers(2, 1, image_shape=image_shape)
    size = math.prod(image_shape)
    check_that(
        length in (None, size), f"{size}, the pixels of {image_shape}, or None", length=length
    )
    return image_shape


def check_pixels(pixels, image_shape):
    """Return (row, column) of each pixel to draw: by default at the top, middle, side and end."""
    height, width = image_shape
    if pixels is None:
        pixels = [(0, width // 2), (height // 2, width // 2), (height // 2, width - 1)]
        return list(dict.fromkeys([*pixels, (height - 1, width // 3)]))
    wanted = f"a list of (row, column) inside the image {image_shape}"
    is_list = isinstance(pixels, (tuple, list)) and len(pixels) > 0
    are_pairs = is_list and all(isinstance(pixel, (tuple, list)) for pixel in pixels)
    check_that(are_pairs, wanted, pixels=pixels)
    pixels = [integers(2, 0, pixels=pixel) for pixel in pixels]
    are_inside = all(row < height and column < width for row, column in pixels)
    check_that(are_inside, wanted, pixels=pixels)
    return pixels


def raster_order(pattern, image_shape):
    """Return the raster index of each position: `BlockLocal2D` reads an image block by block."""
    orders = {block.query_shape for block in _blocks(pattern, image_shape)}
    if not orders:
        return np.arange(math.prod(image_shape))
    check_that(len(orders) == 1, "with blocks of one `query_shape`", pattern=pattern)
    return patterns.block_raster_order(image_shape, orders.pop())


def draw_pixel(axes, weights, pixel, order, image_shape):
    """Draw the factors (T, T) of the pairs of one query, `pixel`, as an image of its keys."""
    rank = int(np.flatnonzero(order == np.ravel_multi_index(pixel, image_shape))[0])
    image = np.zeros(len(order))
    image[order] = weights[rank]
    axes.imshow(image.reshape(image_shape), cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    row, column = pixel
    # A frame, not a filled cell: the shade says whether the pixel attends to itself.
    axes.add_patch(_frame(row, column))
    axes.set(xlabel="column", ylabel="row")


def _frame(row, column):
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=QUERY, linewidth=2)


def _blocks(pattern, image_shape):
    if isinstance(pattern, patterns.BlockLocal2D):
        check_that(
            image_shape == pattern.image_shape,
            f"{pattern.image_shape}, that of the pattern",
            image_shape=image_shape,
        )
        return [pattern]
    parts = ()
    if isinstance(pattern, Combined):
        parts = pattern.first, pattern.second
    elif isinstance(pattern, patterns.PerHead):
        parts = pattern.patterns
    return [block for part in parts for block in _blocks(part, image_shape)]
