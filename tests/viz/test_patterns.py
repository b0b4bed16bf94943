import sys

import numpy as np
import pytest

from keras_attn import patterns
from keras_attn.patterns import LSH, AdaptiveSpan, Dense, Local, PerHead, Strided
from keras_attn.viz import plot_pattern, plot_patterns
from keras_attn.viz.patterns import examples

LENGTH = 9


def pictures(figure):
    return [np.asarray(axes.images[0].get_array()) for axes in figure.axes]


@pytest.mark.parametrize("pattern", [Local(2, causal=False), Strided(4)])
def test_the_picture_shows_the_allowed_pairs(pattern):
    figure = plot_pattern(pattern, LENGTH)
    (picture,) = pictures(figure)
    row = np.arange(LENGTH)
    np.testing.assert_array_equal(picture, np.asarray(pattern.allowed(row, row)))
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("key", "query")
    assert axes.get_title().replace("\n", " ") == repr(pattern)
    assert axes.images[0].get_clim() == (0, 1)


def test_each_head_has_a_panel():
    heads = [Local(2), Strided(3, "column"), Dense()]
    figure = plot_pattern(PerHead(heads), LENGTH)
    row = np.arange(LENGTH)
    for number, (axes, picture, head) in enumerate(
        zip(figure.axes, pictures(figure), heads, strict=True)
    ):
        np.testing.assert_array_equal(picture, np.asarray(head.allowed(row, row)))
        assert axes.get_title().replace("\n", " ") == f"head {number}: {head!r}"


def test_the_shade_of_a_soft_pattern_is_its_factor():
    pattern = AdaptiveSpan(8, ramp=4)
    with pytest.raises(ValueError, match="`pattern` must be built"):
        plot_pattern(pattern, LENGTH)
    pattern.build((None, 2, None, None))
    pattern.span.assign([0.0, 0.25])  # spans of 0 and 2
    for picture, span in zip(pictures(plot_pattern(pattern, LENGTH)), (0, 2), strict=True):
        for i, j in np.ndindex(LENGTH, LENGTH):
            expected = min(max((4 + span - (i - j)) / 4, 0), 1) if 0 <= i - j < 8 else 0
            assert picture[i, j] == pytest.approx(expected, abs=1e-6)


def test_a_dynamic_span_is_drawn_for_given_inputs():
    pattern = AdaptiveSpan(8, ramp=4, dynamic=True)
    pattern.build((None, 1, None, None), (None, None, 2))
    with pytest.raises(ValueError, match=r"pass `inputs` of shape \(9, 2\). Received: inputs=None"):
        plot_pattern(pattern, LENGTH)
    with pytest.raises(ValueError, match=r"`inputs` must have shape \(9, None\)"):
        plot_pattern(pattern, LENGTH, inputs=np.ones((LENGTH + 1, 2)))
    pattern.kernel.assign([[0.0], [1.0]])
    pattern.bias.assign([0.0])
    inputs = np.zeros((LENGTH, 2))
    inputs[-1] = 5, np.log(3)  # sigmoid(log 3) = 3 / 4
    (picture,) = pictures(plot_pattern(pattern, LENGTH, inputs=inputs))
    for i, j in np.ndindex(LENGTH, LENGTH):
        span = 6 if i == LENGTH - 1 else 4
        expected = min(max((4 + span - (i - j)) / 4, 0), 1) if 0 <= i - j < 8 else 0
        assert picture[i, j] == pytest.approx(expected, abs=1e-6)
    assert pattern.losses == []


def test_a_pattern_of_content_is_drawn_for_given_vectors():
    """Each vector attends to earlier ones of its group, or to itself if it is the first."""
    groups = np.array([0, 1, 0, 0, 1, 1])
    vectors = np.where(groups[:, None] == 0, 1.0, -1.0) * np.ones((6, 4))
    (picture,) = pictures(plot_pattern(LSH(6, num_buckets=2), 6, vectors))
    for i, j in np.ndindex(6, 6):
        same = groups[i] == groups[j] and j < i
        alone = i == j and groups[i] not in groups[:i]
        assert picture[i, j] == (same or alone)
    with pytest.raises(ValueError, match=r"`vectors` must have shape \(6, None\).*\(5, 4\)"):
        plot_pattern(LSH(6), 6, np.ones((5, 4)))


@pytest.mark.parametrize("pattern, length", [("local", 3), (Local, 3), (Local(2), 0)])
def test_wrong_patterns_and_lengths_are_refused(pattern, length):
    with pytest.raises(ValueError, match="`patterns.Local|`length`.*length=0"):
        plot_pattern(pattern, length)


def test_examples_show_every_pattern_and_its_source():
    shown = dict(examples())
    kinds = {type(pattern) for pattern in shown.values()}
    everything = {getattr(patterns, name) for name in patterns.__all__}
    missing = {kind for kind in everything - kinds if isinstance(kind, type)}
    assert missing == {patterns.Pattern}
    for title, pattern in shown.items():
        if pattern.is_of_positions:
            assert eval(title, vars(patterns)) == pattern


@pytest.mark.slow
def test_plot_patterns_shows_every_example():
    titles = [axes.get_title().replace("\n", " ") for axes in plot_patterns().axes]
    for title, _ in examples():
        assert any(panel.startswith(title) for panel in titles)


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'keras_attn\[viz\]'"):
        plot_pattern(Dense(), 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["block_local_2d", "strided"])
def test_a_picture_of_a_pixel_shows_the_pixels_that_it_attends_to(name):
    height, width = shape = 3, 5
    pattern = {
        "block_local_2d": patterns.BlockLocal2D(shape, (2, 3), flange=(1, 1)),
        "strided": Strided(width),
    }[name]
    cells = [(row, column) for row in range(height) for column in range(width)]
    if name == "block_local_2d":  # block after block
        cells.sort(key=lambda cell: (cell[0] // 2, cell[1] // 3, cell))
    pixels = [(0, 0), (1, 4), (2, 1)]
    figure = plot_pattern(pattern, image_shape=shape, pixels=pixels)
    assert len(figure.axes) == len(pixels)
    for axes, picture, pixel in zip(figure.axes, pictures(figure), pixels, strict=True):
        query = cells.index(pixel)
        for key, cell in enumerate(cells):
            assert picture[cell] == bool(pattern.allowed(np.array([query]), np.array([key])))
        (frame,) = axes.patches
        assert frame.get_xy() == (pixel[1] - 0.5, pixel[0] - 0.5)


def test_pixels_of_each_head_have_a_row():
    heads = [Local(2), Strided(4, "column")]
    figure = plot_pattern(PerHead(heads), 12, image_shape=(3, 4))
    titles = [axes.get_title().replace("\n", " ") for axes in figure.axes[::4]]
    assert titles == [f"head {number}: {head!r}" for number, head in enumerate(heads)]
    assert pictures(figure)[7][1, 1] == 1  # (2, 1) attends to (1, 1), one row above


@pytest.mark.parametrize(
    "arguments, said",
    [
        ({"length": 7, "image_shape": (2, 3)}, r"`length` must be 6, the pixels of \(2, 3\)"),
        ({"image_shape": (2, 3, 1)}, "`image_shape` must be two integers"),
        ({"image_shape": (2, 3), "pixels": [(2, 0)]}, r"inside the image \(2, 3\). Received: pix"),
        ({"image_shape": (2, 3), "pixels": []}, "`pixels` must be a list"),
        ({"image_shape": (2, 3), "pixels": 3}, "`pixels` must be a list .* pixels=3"),
        ({"image_shape": (2, 3), "pixels": (1, 1)}, r"a list .* Received: pixels=\(1, 1\)"),
        ({"length": 6, "pixels": [(0, 0)]}, "`pixels` must be None without `image_shape`"),
        ({}, "`length` must be an integer of at least 1. Received: length=None"),
    ],
)
def test_an_image_that_does_not_fit_is_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        plot_pattern("causal", **arguments)


def test_an_image_of_another_shape_than_the_patterns_is_refused():
    pattern = patterns.BlockLocal2D((2, 6), (2, 3), flange=(1, 1)) & "causal"
    with pytest.raises(ValueError, match=r"`image_shape` must be \(2, 6\), that of the pattern"):
        plot_pattern(pattern, image_shape=(3, 4))
