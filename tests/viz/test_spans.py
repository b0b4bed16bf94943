"""Pictures of learned spans, and of the soft mask of each head."""

import numpy as np
import pytest
from matplotlib.colors import to_rgba

from keras_attn.models import adaptive_span_transformer
from keras_attn.viz import plot_spans

SPANS, RAMP = [[0.0, 3.5], [7.0, 40.0], [1.0, 2.0]], 5
IDS = np.array([[5, 7, 3, 9, 4], [6, 6, 8, 3, 5]])
TOKENS = ["a", "bb", " ", "\n", "x"]


def lines(axes):
    return [line.get_data() for line in axes.lines]


def made(dynamic):
    sizes = {"num_layers": 3, "num_heads": 2, "hidden_dim": 6, "intermediate_dim": 7}
    model = adaptive_span_transformer(11, **sizes, max_span=50, ramp=RAMP, dynamic=dynamic)
    for number, block in enumerate(model.depth.blocks):
        pattern = block.attention.pattern
        if dynamic:
            pattern.kernel.assign(np.linspace(-2, 2, 12).reshape(6, 2) * (1 + number))
        else:
            pattern.span.assign(np.array(SPANS[number]) / 50)
    return model


@pytest.fixture(scope="module")
def dynamic():
    """A model with dynamic spans, and these for `IDS`."""
    model = made(dynamic=True)
    return model, model.span_summary(IDS)


def test_the_table_has_a_row_a_layer_and_a_column_a_head():
    axes = plot_spans([[1.0, 2.0], [3.0]]).axes[0]
    np.testing.assert_array_equal(
        np.ma.filled(axes.images[0].get_array(), np.nan), [[1, 2], [3, np.nan]]
    )
    texts = {text.get_position(): text.get_text() for text in axes.texts}
    assert texts == {(0, 0): "1.0", (1, 0): "2.0", (0, 1): "3.0"}
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "2"]


def test_lines_are_the_soft_masks_of_the_formula():
    figure = plot_spans(made(dynamic=False).span_summary())
    table, mask = figure.axes[:2]
    np.testing.assert_allclose(table.images[0].get_array(), SPANS, rtol=1e-5)
    heads = [span for layer in SPANS for span in layer]
    assert len(lines(mask)) == len(heads)
    for (x, drawn), span in zip(lines(mask), heads, strict=True):
        expected = [min(max((RAMP + span - d) / RAMP, 0), 1) if d < 50 else 0 for d in x]
        np.testing.assert_allclose(drawn, expected, atol=1e-5)
        assert x[0] == 0 and x[-1] == pytest.approx(max(heads) + RAMP, rel=1e-5)
    colors = [to_rgba(line.get_color()) for line in mask.lines]
    assert colors[::2] == colors[1::2] and len(set(colors)) == 3
    legend = [text.get_text() for text in mask.get_legend().get_texts()]
    assert legend == ["layer 1", "layer 2", "layer 3"]


def test_a_mask_ends_at_the_longest_span():
    (x, mask) = lines(plot_spans([[60.0]], ramp=10, max_span=64).axes[1])[0]
    assert x[-1] == 64 and mask[x < 60].min() == 1 and mask[-1] == 0
    assert 0.5 < mask[-2] < 0.7


@pytest.mark.slow
def test_dynamic_spans_are_drawn_at_each_token(dynamic):
    model, summary = dynamic
    figure = plot_spans(summary, TOKENS, row=1)
    panels = {axes.get_title(): axes for axes in figure.axes}
    axes = panels["span of the query at each token, mean over heads"]
    expected = [layer["queries"][1].mean(axis=0) for layer in summary]
    for (_, drawn), of_layer in zip(lines(axes), [*expected, np.mean(expected, 0)], strict=True):
        np.testing.assert_allclose(drawn, of_layer, rtol=1e-6)
    names = [label.get_text() for label in axes.get_xticklabels()]
    assert names == ["a", "bb", "␣", "⏎", "x"]
    pattern = model.depth.blocks[0].attention.pattern
    logits = np.asarray(model.embedding(IDS), "float64") @ np.asarray(pattern.kernel)
    spans = 50 / (1 + np.exp(-logits - np.asarray(pattern.bias)))
    np.testing.assert_allclose(expected[0], spans[1].mean(axis=-1), rtol=1e-5)


@pytest.mark.parametrize(
    "spans, arguments, message",
    [
        ([], {}, "`spans` must be of at least one layer"),
        ({}, {}, "`spans` must be of at least one layer"),
        ([[1.0, np.nan]], {}, "`spans` must be numbers of at least 0, .*nan"),
        ([[-1.0]], {}, "`spans` must be numbers of at least 0"),
        ([["a"]], {}, "`spans` must be numbers of at least 0"),
        ([{"spans": [1.0]}], {}, "as `model.span_summary.*` gives them"),
        ([[]], {}, "`spans` must be numbers of at least 0"),
        ([1.0, 2.0], {}, "a list of heads a layer"),
        ([[1.0]], {"ramp": 0}, "`ramp`.*ramp=0"),
        ([[1.0]], {"tokens": TOKENS}, "`tokens` need dynamic spans.*1 of 1 layers"),
        ("dynamic", {"tokens": TOKENS[:3]}, "each of the 5 queries. Received: 3 tokens"),
        ("dynamic", {"tokens": TOKENS, "row": 2}, "a row of the batch, below 2. Received: row=2"),
        ("dynamic", {"tokens": 3}, "`tokens` must be a list of strings"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(spans, arguments, message, dynamic):
    spans = dynamic[1] if isinstance(spans, str) else spans
    with pytest.raises(ValueError, match=message):
        plot_spans(spans, **arguments)
