import warnings

import numpy as np
import pytest

from keras_attn.viz import plot_attention
from keras_attn.viz.figure import families_for

B, N, T, S = 2, 3, 5, 7
QUERIES, KEYS = ["I", "see", "", " a\n", "$x$"], [f"key{i}" for i in range(S)]


def scores(*shape, seed=0):
    weights = np.random.default_rng(seed).exponential(size=shape)
    return weights / weights.sum(axis=-1, keepdims=True)


def panels(figure):
    """(title, weights) of each panel."""
    return [
        (axes.get_title("left"), np.asarray(axes.images[0].get_array()))
        for axes in figure.axes
        if axes.images
    ]


def names(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_all_layers_and_heads_are_a_grid_in_one_shade():
    steps = [scores(B, 2, T, S, seed=seed) for seed in (1, 2)]
    by_layer = {"first/cross_attention": scores(B, N, T, S), "block/cross_attention": steps}
    figure = plot_attention(by_layer, QUERIES, KEYS, row=1)
    expected = [
        *(("first/cross_attention", n, by_layer["first/cross_attention"][1, n]) for n in range(N)),
        *(("block/cross_attention, step 1", n, steps[0][1, n]) for n in range(2)),
        *(("block/cross_attention, step 2", n, steps[1][1, n]) for n in range(2)),
    ]
    drawn = panels(figure)
    for (title, weights), (layer, head, of_head) in zip(drawn, expected, strict=True):
        assert title == (f"{layer}\nhead {head}" if head == 0 else f"head {head}")
        np.testing.assert_array_equal(weights, of_head)
    most = max(weights.max() for _, weights in drawn)
    assert all(axes.images[0].get_clim() == (0, most) for axes in figure.axes if axes.images)


def test_tokens_are_on_both_axes():
    axes = plot_attention(scores(T, S), QUERIES, KEYS).axes[0]
    assert names(axes.yaxis) == ["I", "see", "∅", "␣a⏎", "$x$"]
    assert names(axes.xaxis) == KEYS
    assert not any(label.get_parse_math() for label in axes.get_yticklabels())


def test_each_column_has_names_below_its_last_panel():
    by_layer = {"a": scores(1, 2, S, S), "b": scores(1, 1, S, S)}
    grid = [axes for axes in plot_attention(by_layer, KEYS).axes if axes.images]
    assert [names(axes.xaxis) for axes in grid] == [[], KEYS, KEYS]


def test_one_head_the_mean_and_some_layers_are_chosen():
    by_layer = {"a/attention": scores(B, N, S, S), "b/attention": scores(B, N, S, S, seed=1)}
    ((title, weights),) = panels(plot_attention(by_layer, KEYS, layers="b/*", head=2))
    assert title == "b/attention\nhead 2"
    np.testing.assert_array_equal(weights, by_layer["b/attention"][0, 2])
    first, _ = panels(plot_attention(by_layer, KEYS, layers="attention", head="mean"))
    np.testing.assert_allclose(first[1], by_layer["a/attention"][0].mean(axis=0))


def test_of_many_tokens_some_are_named_and_a_long_name_is_cut():
    axes = plot_attention(scores(200, 200), [str(i) for i in range(200)]).axes[0]
    assert names(axes.xaxis) == [str(i) for i in range(0, 200, 3)]
    axes = plot_attention(np.eye(2), ["b" * 60, "short"]).axes[0]
    assert names(axes.xaxis) == ["b" * 23 + "…", "short"]


def test_of_more_tokens_than_pixels_no_weight_is_lost():
    weights = np.zeros((37, 1001))
    weights[36, 1000] = weights[5, 1] = 1.0
    for turned in (False, True):
        weights = weights.T if turned else weights
        names_of = [[str(n) for n in range(length)] for length in weights.shape]
        axes = plot_attention(weights, *names_of).axes[0]
        (image,) = axes.images
        cells = image.get_array().T if turned else image.get_array()
        assert cells.shape == (37, 334) and cells.sum() == 2 and cells[5, 0] == cells[36, 333] == 1
        left, right, below, above = image.get_extent()
        assert (left, above) == (-0.5, -0.5)
        assert (right, below) == ((36.5, 1001.5) if turned else (1001.5, 36.5))
        assert (axes.get_xlim()[1], axes.get_ylim()[0]) == tuple(
            n - 0.5 for n in weights.shape[::-1]
        )


@pytest.mark.parametrize(
    "weights, arguments, message",
    [
        ({}, {}, "`scores` must hold at least one layer"),
        (scores(2), {}, "`scores` must be arrays"),
        ({"a": scores(B, N, T, S)}, {"tokens": KEYS}, "each of the 5 queries of a; .* 7 tokens"),
        ({"a": scores(B, N, T, S)}, {}, "each of the 7 keys of a; .* 5 key_tokens"),
        ({"a": scores(B, N, T, T)}, {"row": 2}, "a row of the batch, below 2. Received: row=2"),
        ({"a": scores(B, N, T, T)}, {"head": 3}, "below 3. Received: head=3"),
        ({"a": scores(B, N, T, T)}, {"row": 0.5}, "a row of the batch, below 2. Received: row=0.5"),
        ({"a": scores(B, N, T, T)}, {"head": True}, "below 3. Received: head=True"),
        ({"a": scores(B, N, T, T)}, {"tokens": None}, "`tokens` must be a list of strings"),
        ({"a": scores(B, N, T, T)}, {"layers": 0}, "the end of a path, a string. .*layers=0"),
        (scores(T, T) * np.nan, {}, r"`scores` must be weights in .* \(5, 5\).* 25 of them NaN"),
        (np.ones((0, 0)), {"tokens": []}, "of at least one token"),
        (-np.eye(T), {}, "weights in .* from -1.0 to -0.0"),
        (np.full((T, T), "a"), {}, "weights in .* dtype <U1"),
        ({"a/b": scores(B, N, T, T)}, {"layers": "a"}, "which has a/b. Received: layers='a'"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(weights, arguments, message):
    with pytest.raises(ValueError, match=message):
        plot_attention(weights, **{"tokens": QUERIES, **arguments})


def font_with(characters, family, folder):
    """Write a font that has some characters, each a square."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen

    glyphs = [".notdef", *(f"u{ord(x):X}" for x in characters)]
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for point in ((0, 500), (500, 500), (500, 0)):
        pen.lineTo(point)
    pen.closePath()
    square = pen.glyph()
    builder = FontBuilder(1000)
    builder.setupGlyphOrder(glyphs)
    builder.setupCharacterMap({ord(x): f"u{ord(x):X}" for x in characters})
    builder.setupGlyf(dict.fromkeys(glyphs, square))
    builder.setupHorizontalMetrics(dict.fromkeys(glyphs, (600, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": family, "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(folder / f"{family}.ttf")
    return folder / f"{family}.ttf"


# Characters of no script, which no font has.
PRIVATE = "\U0010fa01\U0010fa02"


@pytest.mark.slow
def test_a_font_that_has_the_script_is_found(tmp_path):
    """For letters that DejaVu lacks."""
    from matplotlib import font_manager

    manager = font_manager.fontManager
    before = list(manager.ttflist)
    manager.addfont(font_with(PRIVATE, "Private", tmp_path))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            letters = ["I", "мир", "καί", "שלום", "مرحبا", "∅␣⏎⇥"]
            assert families_for(letters) == ["DejaVu Sans"]
            assert families_for(["I", PRIVATE]) == ["DejaVu Sans", "Private"]
            figure = plot_attention(np.eye(2), ["I", PRIVATE])
            label = figure.axes[0].get_yticklabels()[1]
            assert label.get_fontfamily() == ["DejaVu Sans", "Private"]
            figure.savefig(tmp_path / "picture.png")
    finally:
        manager.ttflist[:] = before


def test_a_script_without_a_font_is_named():
    with pytest.warns(UserWarning, match=r"No font on this machine has \S+ \(UNNAMED\)"):
        plot_attention(np.eye(2), ["I", PRIVATE])
