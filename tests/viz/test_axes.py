import importlib

import pytest

from keras_attn.viz import axes, plot_axes

MODULES = ["scores", "patterns", "positions", "residuals", "depth", "memory"]


def labels(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_every_axis_question_and_value_is_drawn():
    drawn = labels(plot_axes())
    for axis, question, values in axes.AXES:
        assert {axis, question, *(label for label, _ in values)} <= set(drawn)


@pytest.mark.parametrize("name", MODULES)
def test_every_value_of_the_package_is_in_the_picture(name):
    module = importlib.import_module(f"keras_attn.{name}")
    classes = {n for n in module.__all__ if isinstance(getattr(module, n), type)}
    drawn = {value for _, _, values in axes.AXES for _, value in values}
    bases = {"Pattern", "Position", "Residual", "Score", "ScoreLayer"}
    not_values = bases | {"Both", "Either"}  # `p & q | r` stands for these two
    assert {f"{name}.{value}" for value in classes - not_values} <= drawn


def test_only_existing_values_are_filled(monkeypatch):
    monkeypatch.setattr(axes, "works", {"patterns.Causal", "depth.Stack"}.__contains__)
    filled = [
        text.get_text()
        for text in plot_axes().axes[0].texts
        if text.get_bbox_patch() and text.get_color() == axes.PAPER
    ]
    assert filled == ["Causal", "Stack", "works today"]


@pytest.mark.parametrize(
    "name, expected",
    [
        ("patterns.Causal", True),
        ("patterns.Pattern.allowed", True),
        ("patterns.Nowhere", False),
        ("nowhere.Causal", False),
    ],
)
def test_works_looks_a_name_up_in_the_package(name, expected):
    assert axes.works(name) is expected


def test_boxes_stay_inside_the_picture():
    for _, _, values in axes.AXES:
        boxes = axes._place(values)
        assert len({(x, line) for _, _, x, line in boxes}) == len(values)
        for label, _, x, _ in boxes:
            assert x + len(label) * axes.CHARACTER + 2 * axes.BOX_PADDING <= axes.WIDTH - axes.LEFT
