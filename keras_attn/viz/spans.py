"""Pictures of learned attention spans."""

import numpy as np

from keras_attn.ops.checks import check_numbers, check_sizes, check_that
from keras_attn.viz.attention_maps import numbers_of, row_of
from keras_attn.viz.figure import families_for, new_figure, shown, write_names

RAMP = 32  # of an `AdaptiveSpan` by default
MOST_NUMBERS = 96  # heads, above which cells of the table show no number
MOST_LINES = 8  # layers, above which the legend names the first and the last one only
TOKEN, NARROWEST, WIDEST = 0.2, 6.0, 16.0  # inches of a token, and of the panel of all tokens


def plot_spans(spans, tokens=None, *, ramp=None, max_span=None, row=0):
    """Return a figure of the span z of each head of each layer, and of its soft mask.

        m_z(x) = clip((R + z - x) / R, 0, 1),   x < max_span

    On the left a table, a row a layer and a column a head; on the right m_z(x), a line a head in
    the colour of its layer. Of dynamic spans these are those of the mean. With `tokens` a third
    panel has the span at each token, the mean over heads, of each layer and of all.

    Args:
        spans: list from `span_summary` of a model; or of one layer a dict from that of an
            `AdaptiveSpan`, or lists of numbers by layer and head, as on a recipe's card.
        tokens: list of T strings, of the queries of dynamic spans.
        ramp: int. R, by default that of `spans`, or 32 where they are numbers.
        max_span: int. The longest span, by default that of `spans`, or the longest with its ramp.
        row: int. Row of the batch, of dynamic spans with `tokens`.

    Raises:
        ValueError: if `spans` are empty, NaN or negative, `tokens` are given for static spans or
            not as many as queries, or `row` does not exist.
        ImportError: if Matplotlib is not installed.

    Example:
        >>> from keras_attn.viz import plot_spans
        >>> figure = plot_spans([[0.0, 3.0], [4.0, 50.0]])
        >>> figure.axes[0].images[0].get_array().tolist()
        [[0.0, 3.0], [4.0, 50.0]]

    Reference: pictures of this kind: [Sukhbaatar et al., 2019](https://arxiv.org/abs/1905.07799),
        figures 3 to 5.
    """
    layers = _layers(spans)
    summaries = [layer for layer in layers if isinstance(layer, dict)]
    heads = [_numbers(layer["spans"] if isinstance(layer, dict) else layer) for layer in layers]
    if ramp is None:
        ramp = max((summary["ramp"] for summary in summaries), default=RAMP)
    check_numbers(1, ramp=ramp)
    longest = max(float(layer_spans.max()) for layer_spans in heads) + ramp
    if max_span is None:
        max_span = max((summary["max_span"] for summary in summaries), default=longest)
    check_numbers(1, max_span=max_span)
    token_spans = None if tokens is None else _token_spans(summaries, len(layers), row)
    tokens = None if tokens is None else _check_tokens(tokens, token_spans)
    count = max(len(layer_spans) for layer_spans in heads)
    width, height = 0.5 * count + 5.6, max(0.3 * len(heads) + 0.9, 2.4)
    if tokens is None:
        figure = new_figure(width, height)
        table, mask = figure.subplots(1, 2, width_ratios=[0.5 * count + 1, 4.2])
    else:
        width = max(width, min(max(TOKEN * len(tokens), NARROWEST), WIDEST))
        figure = new_figure(width, height + 2.4)
        upper, lower = figure.subfigures(2, 1, height_ratios=[height, 2.4])
        table, mask = upper.subplots(1, 2, width_ratios=[0.5 * count + 1, 4.2])
        _draw_tokens(lower.subplots(), token_spans, tokens)
    _draw_table(table, heads)
    _draw_masks(mask, heads, ramp, max_span, min(longest, max_span))
    return figure


def _draw_table(axes, heads):
    count = max(len(layer_spans) for layer_spans in heads)
    table = np.full((len(heads), count), np.nan)
    for number, layer_spans in enumerate(heads):
        table[number, : len(layer_spans)] = layer_spans
    most = np.nanmax(table)
    axes.imshow(table, cmap="Blues", vmin=0, vmax=most or 1, aspect="auto")
    axes.set(title="span z of each head", xlabel="head", ylabel="layer")
    axes.title.set_size(9)
    axes.set_xticks(range(count))
    axes.set_yticks(range(len(heads)), range(1, len(heads) + 1))
    if table.size <= MOST_NUMBERS:
        for (layer, head), span in np.ndenumerate(table):
            if np.isfinite(span):
                text = f"{span:.0f}" if span >= 10 or span == 0 else f"{span:.1f}"
                color = "white" if span > 0.6 * most else "black"
                axes.text(head, layer, text, ha="center", va="center", size=7.5, color=color)


def _draw_masks(axes, heads, ramp, max_span, end):
    x = np.linspace(0, end, 501)
    for number, layer_spans in enumerate(heads):
        for head, span in enumerate(layer_spans):
            mask = np.where(x < max_span, np.clip((ramp + span - x) / ramp, 0, 1), 0)
            label = _layer_label(number, len(heads)) if head == 0 else "_"
            axes.plot(x, mask, color=_color(number, len(heads)), label=label, linewidth=1.2)
    axes.set(title="soft mask of each head", xlabel="keys that are nearer, x", ylabel="m_z(x)")
    axes.title.set_size(9)
    axes.set_xlim(0, end)
    axes.legend(fontsize=7.5, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def _draw_tokens(axes, token_spans, tokens):
    for number, layer_spans in enumerate(token_spans):
        color = _color(number, len(token_spans))
        axes.plot(layer_spans, color=color, linewidth=0.8, alpha=0.7)
    axes.plot(np.mean(token_spans, axis=0), "k.-", linewidth=1.6, label="mean of all layers")
    axes.set(title="span of the query at each token, mean over heads", ylabel="tokens")
    axes.title.set_size(9)
    axes.set_xlim(-0.6, len(tokens) - 0.4)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7.5, frameon=False)
    rotation = 90 if max(map(len, tokens)) > 2 else 0
    families = families_for([shown(token) for token in tokens])
    write_names(axes.xaxis, tokens, families, rotation=rotation)


def _layer_label(number, count):
    """Return the label of a layer in the legend; of many layers most have none."""
    return f"layer {number + 1}" if count <= MOST_LINES or number in (0, count - 1) else "_"


def _color(number, count):
    from matplotlib import colormaps

    return colormaps["viridis"](0.92 * number / max(count - 1, 1))


def _layers(spans):
    """Return a list with the summary or the numbers of each layer."""
    if isinstance(spans, dict):
        spans = [spans]
    is_list = isinstance(spans, (list, tuple, np.ndarray)) and len(spans) > 0
    names = {"spans", "ramp", "max_span"}
    summaries = [layer for layer in spans if isinstance(layer, dict)] if is_list else []
    is_list = is_list and all(names <= summary.keys() for summary in summaries)
    check_that(is_list, "of at least one layer, as `model.span_summary()` gives them", spans=spans)
    return list(spans)


def _numbers(layer_spans):
    numbers = numbers_of(layer_spans)
    is_list = numbers.dtype.kind in "iuf" and numbers.ndim == 1 and numbers.size > 0
    if not is_list or not np.all((numbers >= 0) & np.isfinite(numbers)):
        raise ValueError(
            "`spans` must be numbers of at least 0, a list of heads a layer. "
            f"Received: a layer with {layer_spans!r}."
        )
    return numbers.astype("float64")


def _token_spans(summaries, num_layers, row):
    """Return the spans of the queries of a row by layer, (L, T), the mean over heads."""
    layers = [summary["queries"] for summary in summaries if "queries" in summary]
    if len(layers) < num_layers:
        raise ValueError(
            "`tokens` need dynamic spans, as `model.span_summary(token_ids)` gives them: a static "
            f"span is the same at each token. Received: {num_layers - len(layers)} of {num_layers} "
            "layers without spans by query."
        )
    return np.stack([row_of(np.asarray(layer_spans), row).mean(axis=0) for layer_spans in layers])


def _check_tokens(tokens, token_spans):
    check_that(hasattr(tokens, "__iter__"), "a list of strings", tokens=tokens)
    tokens, length = [str(token) for token in tokens], token_spans.shape[1]
    check_sizes(length=length)
    if len(tokens) != length:
        raise ValueError(
            f"`tokens` must name each of the {length} queries. Received: {len(tokens)} tokens."
        )
    return tokens
