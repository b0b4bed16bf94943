"""The text of a report."""

import pytest

from keras_attn import layers, patterns
from keras_attn.testing import Defect, Report, check_attention


def test_a_report_lists_defects_and_skipped_checks():
    report = Report(
        "a.Layer",
        ("graph", "scores", "padding"),
        (Defect("graph", "It differs."), Defect("scores", "They change.")),
        {"limits": "there is no key"},
    )
    assert not report.ok
    assert str(report).splitlines() == [
        "a.Layer: 2 defects, found by 3 checks",
        "  graph: It differs.",
        "  scores: They change.",
        "  limits: not checked: there is no key",
    ]
    with pytest.raises(AssertionError, match="2 defects.*\n.*graph: It differs"):
        report.raise_if_any()


def test_a_report_without_defects_is_ok():
    report = Report("a.Layer", ("graph",), ())
    assert report.ok and report.raise_if_any() is None
    assert str(report) == "a.Layer: no defect, 1 check"


class Unregistered(patterns.Pattern):
    """A pattern that no configuration can name."""

    def mask_mod(self, i, j):
        return j <= i


def test_a_class_that_is_not_registered_is_reported_once_with_the_remedy():
    layer = layers.MultiHeadAttention(2, 3, pattern=Unregistered())
    report = check_attention(layer, only=["config", "building"])
    first, *others = report.defects
    assert "'Unregistered'" in first.sentence
    assert "@keras.saving.register_keras_serializable()" in first.sentence
    assert [str(defect) for defect in others] == [
        "building: The check raised the same exception as `config`."
    ]
