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


@pytest.mark.parametrize("pattern", [Dense(), Local(3), Local(2, causal=False), Strided(4)])
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


@pytest.mark.parametrize("pattern, length", [("local", 3), (Local, 3), (Local(2), 0)])
def test_wrong_patterns_and_lengths_are_refused(pattern, length):
    with pytest.raises(ValueError, match="`patterns.Local|`length`.*length=0"):
        plot_pattern(pattern, length)


def test_vectors_of_another_length_are_refused():
    with pytest.raises(ValueError, match=r"`vectors` must have shape \(6, None\).*\(5, 4\)"):
        plot_pattern(LSH(6), 6, np.ones((5, 4)))


def test_plot_patterns_shows_every_pattern_and_its_source():
    shown = dict(examples())
    kinds = {type(pattern) for pattern in shown.values()}
    everything = {getattr(patterns, name) for name in patterns.__all__}
    missing = {kind for kind in everything - kinds if isinstance(kind, type)}
    assert missing == {patterns.Pattern}
    for title, pattern in shown.items():
        if pattern.is_of_positions:
            assert eval(title, vars(patterns)) == pattern
    titles = [axes.get_title().replace("\n", " ") for axes in plot_patterns().axes]
    for title in shown:
        assert any(panel.startswith(title) for panel in titles)


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'keras_attn\[viz\]'"):
        plot_pattern(Dense(), 4)
