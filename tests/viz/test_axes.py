import importlib

from each import check_each

from keras_attn.viz import axes, plot_axes

MODULES = "scores patterns positions norms residuals feed_forward depth memory".split()
# Bases, and what is shown as "p & q | r", "s + bias" and "none".
NO_VALUES = set(
    "Bias KernelScore Memory Norm Pattern Position PositionMixer Residual Score "
    "Both Either Sum NoNorm ScoreLayer RotaryScaling Halting".split()
)


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def test_every_axis_question_and_value_is_drawn():
    drawn = texts(plot_axes())
    for axis, question, values in axes.AXES:
        assert {axis, question, *values} <= set(drawn)


def test_every_value_of_the_packages_is_in_the_picture():
    check_each(check_package, MODULES)


def check_package(name):
    module = importlib.import_module(f"keras_attn.{name}")
    classes = {n for n in module.__all__ if isinstance(getattr(module, n), type)}
    drawn = {
        label
        for axis, _, labels in axes.AXES
        for label in labels
        if name in (f"{axis}s", axis, axis.replace("-", "_"))
    }
    assert classes - NO_VALUES <= drawn


def test_boxes_stay_inside_the_picture():
    for _, _, labels in axes.AXES:
        boxes = axes._place(labels)
        assert len({(x, line) for _, x, line in boxes}) == len(labels)
        for label, x, _ in boxes:
            assert x + len(label) * axes.CHARACTER + 2 * axes.BOX_PADDING <= axes.WIDTH - axes.LEFT
