"""Steps of adaptive computation time: from outside of a model, and as pictures over tokens."""

import contextlib
import functools

import numpy as np
from keras import ops

from keras_attn.backend.operations import call_on_host
from keras_attn.depth import ACT, ACTRNN, Halting
from keras_attn.depth.halting import record_halting
from keras_attn.ops.checks import check_that
from keras_attn.viz.attention_maps import describe, numbers_of, row_of, runs_by_title
from keras_attn.viz.capture import Recorder, paths_of
from keras_attn.viz.figure import families_for, new_figure, shown, write_names

STEPS, REMAINDER = "#2f6690", "#9fc9e3"
ROUNDING = 1e-5
# Inches of a token, of the narrowest and the widest panel, and of the height of one.
TOKEN, NARROWEST, WIDEST, HEIGHT = 0.22, 2.6, 16.0, 1.7


@contextlib.contextmanager
def capture_halting(model):
    """Collect the steps and remainders of every `ACT` and `ACTRNN` while a model runs.

        with capture_halting(model) as halting:
            model.predict(inputs)
        halting["encoder"].steps  # (B, T)

    Outputs do not change. Calls and `predict` are captured as by
    `keras_attn.viz.capture_attention`, with its limits: one device, no gradients, no XLA on
    TensorFlow. Cost: that of copying 8 bytes a position.

    Args:
        model: a model or layer that holds a `keras_attn.depth.ACT` or `ACTRNN`.

    Returns:
        A context manager that gives a dict from the path of a layer, such as "decoder", to its
        `keras_attn.depth.Halting`, whose arrays are NumPy's, (B, T): 0 steps at padding. A layer
        that runs more than once has a list. Of an `ACTRNN` with several cells they are (B, C, T).

    Raises:
        ValueError: if the model has no such layer, or batches of `predict` have several lengths.

    Example:
        >>> import keras_attn, numpy as np
        >>> model = keras_attn.models.universal_transformer(100, num_layers=3, num_heads=2,
        ...     hidden_dim=8, intermediate_dim=16, depth="act")
        >>> with keras_attn.viz.capture_halting(model) as halting:
        ...     logits = model({"source_ids": [[5, 7, 9, 0]], "target_ids": [[2, 6]]})
        >>> halting["encoder"].steps.shape, int(halting["encoder"].steps[0, 3])
        ((1, 4), 0)

    Reference: [Graves, 2016](https://arxiv.org/abs/1603.08983), section 2, eq. 6 to 9.
    """
    wanted = "a `keras_attn.depth.ACT` or `ACTRNN`"
    recorder = _Recorder(paths_of(model, (ACT, ACTRNN), wanted))
    try:
        with record_halting(recorder.record), recorder.in_predict(model):
            yield recorder.captured
            recorder.check_captured()
    finally:
        recorder.close()


class _Recorder(Recorder):
    """The halting of a scope."""

    def record(self, layer, halting):
        path = self.paths.get(id(layer))
        if path is not None:
            # One array for both, since the order of two calls is undefined.
            steps = ops.cast(halting.steps, halting.remainder.dtype)
            both = ops.stack([steps, halting.remainder], axis=-1)
            call_on_host(functools.partial(self.keep, path, next(self.places)), both)

    def keep(self, path, place, arrays):
        halting = Halting(arrays[..., 0].astype("int32"), arrays[..., 1])
        super().keep(path, place, halting)


def plot_halting(halting, tokens, *, layers=None, row=0):
    """Return a figure of the steps at each token: a bar of height N, and one of height R on it.

        ponder cost of a token = N + R, the height of both

    One panel a layer, or a run of one. Tokens may be of any script of which this machine has a
    font, as in `keras_attn.viz.plot_attention`.

    Args:
        halting: dict from `capture_halting`; or of one layer a `keras_attn.depth.Halting`, or the
            steps alone, integers (B, T) or (T,).
        tokens: list of T strings.
        layers: string. The end of the paths to draw, such as "encoder", in which `*` stands for
            any text; by default all layers.
        row: int. Row of the batch.

    Raises:
        ValueError: if `halting` is empty, of another shape, has steps that are not whole numbers of
            at least 0 or remainders outside [0, 1], the number of tokens is not T of every drawn
            layer, or `layers` or `row` does not exist.
        ImportError: if Matplotlib is not installed.

    Example:
        >>> from keras_attn.viz import plot_halting
        >>> figure = plot_halting([2, 4, 1], ["I", "see", "you"])
        >>> [int(bar.get_height()) for bar in figure.axes[0].containers[0]]
        [2, 4, 1]

    Reference: pictures of this kind: [Dehghani et al., 2019](https://arxiv.org/abs/1807.03819),
        figure 3; [Graves, 2016](https://arxiv.org/abs/1603.08983), section 3.5.
    """
    if isinstance(halting, list) and halting and all(np.ndim(number) == 0 for number in halting):
        halting = np.array(halting)
    panels = {}
    for title, run in runs_by_title(halting, layers, "halting").items():
        panels |= _cells(title, run, row)
    tokens = _check_tokens(tokens, panels)
    width = min(max(TOKEN * len(tokens), NARROWEST), WIDEST)
    longest = max((len(token) for token in tokens), default=0)
    rotation = 90 if longest > 2 else 0
    names = 0.09 * min(longest, 20) if rotation else 0.1
    figure = new_figure(width + 0.9, HEIGHT * len(panels) + names + 0.5)
    grid = figure.subplots(len(panels), 1, squeeze=False, sharex=True)[:, 0]
    families = families_for([shown(token) for token in tokens])
    for axes, (title, (steps, remainder)) in zip(grid, panels.items(), strict=True):
        _draw_bars(axes, title, steps, remainder)
        write_names(axes.xaxis, tokens, families, rotation=rotation)
        axes.label_outer()
    grid[0].set_xlim(-0.6, len(tokens) - 0.4)
    if any(remainder is not None for _, remainder in panels.values()):
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside upper right", ncols=2, frameon=False, fontsize=8
        )
    return figure


def _draw_bars(axes, title, steps, remainder):
    """Draw the steps of a panel, and remainders on them unless they are None."""
    places = range(len(steps))
    axes.bar(places, steps, color=STEPS, label="steps N")
    if remainder is not None:
        axes.bar(places, remainder, bottom=steps, color=REMAINDER, label="remainder R")
    ran = steps[steps > 0]
    mean = f"mean N {ran.mean():.2f}" if len(ran) else "no step"
    axes.set_title(f"{title}: {mean}" if title else mean, size=8, loc="left")
    axes.set_ylabel("steps", size=8)
    axes.set_ylim(0, max(steps.max() + (remainder is not None), 1) * 1.04)
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.spines[["top", "right"]].set_visible(False)


def _cells(title, run, row):
    """Return (N, R) of one row by title, of several cells one each; R may be None."""
    arrays = [numbers_of(x) for x in (run if isinstance(run, Halting) else (run,)) if x is not None]
    _check_arrays(*arrays)
    if arrays[0].ndim > 1:
        arrays = [row_of(array, row) for array in arrays]
    steps, remainder = (*arrays, None)[:2]
    if steps.ndim == 1:
        return {title: (steps, remainder)}
    remainders = [None] * len(steps) if remainder is None else remainder
    pairs = zip(steps, remainders, strict=True)
    prefix = f"{title}, " if title else ""
    return {f"{prefix}cell {number + 1}": pair for number, pair in enumerate(pairs)}


def _check_arrays(steps, remainder=None):
    """Refuse steps and remainders that are none, or of different shapes."""
    shapes = {steps.shape} if remainder is None else {steps.shape, remainder.shape}
    if steps.ndim not in (1, 2, 3) or len(shapes) > 1:
        by = ", ".join(str(shape) for shape in shapes)
        raise ValueError(
            "`halting` must be steps, and remainders of the same shape, (B, T) or (T,). "
            f"Received: halting of shape {by}."
        )
    if not _is_whole(steps) or not (remainder is None or _is_share(remainder)):
        received = " and ".join(describe(x) for x in (steps, remainder) if x is not None)
        raise ValueError(
            "`halting` must be steps of at least one token, whole numbers of at least 0; give "
            "remainders in [0, 1] as `keras_attn.depth.Halting(steps, remainders)`. "
            f"Received: halting of {received}."
        )


def _is_whole(steps):
    is_number = steps.dtype.kind in "iuf" and steps.size > 0
    return is_number and bool(np.all((steps >= 0) & (steps < np.inf) & (steps == np.floor(steps))))


def _is_share(remainder):
    is_number = remainder.dtype.kind == "f"
    return is_number and bool(np.all((remainder >= 0) & (remainder <= 1 + ROUNDING)))


def _check_tokens(tokens, panels):
    """Return the tokens as a list of strings; refuse another number of them than of steps."""
    check_that(hasattr(tokens, "__iter__"), "a list of strings", tokens=tokens)
    tokens = [str(token) for token in tokens]
    for title, (steps, _) in panels.items():
        if len(tokens) != len(steps):
            raise ValueError(
                f"`tokens` must name each of the {len(steps)} positions of "
                f"{title or 'the steps'}, padding included; `layers` chooses the layers of one "
                f"text. Received: {len(tokens)} tokens."
            )
    return tokens
