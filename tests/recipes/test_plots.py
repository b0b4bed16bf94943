"""The picture of a training."""

import math

import pytest

from recipes.common import plots

LOSSES = [2.5, 1.75, 1.5]


def axes_of(monkeypatch, values, metric="val_metric"):
    """Return the labels of the y axes of a training whose metric has the values."""
    figures = []
    monkeypatch.setattr(plots, "save", lambda figure, path: figures.append(figure))
    rows = [
        {"epoch": epoch, "loss": loss + 1.0, "val_loss": loss, metric: value}
        for epoch, (loss, value) in enumerate(zip(LOSSES, values))
    ]
    plots.draw_training(rows, metric, "curve.png")
    return [axes.get_ylabel() for axes in figures[0].axes]


@pytest.mark.parametrize(
    "values",
    [LOSSES, [x / math.log(2) for x in LOSSES], [*map(math.exp, LOSSES)]],
    ids=["loss", "bits", "perplexity"],
)
def test_a_metric_that_is_the_validation_loss_in_other_units_has_no_axis(monkeypatch, values):
    assert axes_of(monkeypatch, values) == ["loss"]


def test_the_validation_loss_is_drawn_once(monkeypatch):
    assert axes_of(monkeypatch, LOSSES, "val_loss") == ["loss"]


@pytest.mark.parametrize("values", [[0.5, 0.75, 0.5], [3.0, 1.75, 1.5], [None, 1.75, 1.5]])
def test_a_metric_of_its_own_has_an_axis_of_its_own(monkeypatch, values):
    expected = ["loss"] if values[0] is None else ["loss", "val metric"]
    assert axes_of(monkeypatch, values) == expected
