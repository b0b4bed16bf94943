"""Values of `--with`: literals, words, and expressions of classes of the axes."""

import pytest

from keras_attn import norms, patterns, positions, residuals, scores
from keras_attn.patterns import Global, Local
from keras_attn.scores import ALiBi, DotProduct
from recipes.common.model_arguments import build_model, parse_value


@pytest.mark.parametrize(
    "text, value",
    [
        ("7", 7),
        ("-0.5", -0.5),
        ("None", None),
        ("(4, 4)", (4, 4)),
        ('"act"', "act"),
        ("act", "act"),
        ("a/b c", "a/b c"),
        ("", ""),
        ("{[]: 1}", "{[]: 1}"),
        ("Local(32)", Local(32)),
        ("patterns", "patterns"),
        (" Local(window=5, causal=False) ", Local(5, causal=False)),
        ("Local(3) & causal", Local(3) & "causal"),
        ("Local(3, causal=False) | Global(1)", Local(3, causal=False) | Global(1)),
        ("PerHead([Local(2), causal])", patterns.PerHead([Local(2), "causal"])),
        ("Sinks(2, 5)", patterns.Sinks(2, 5)),
    ],
)
def test_a_value_is_a_literal_a_word_or_an_expression(text, value):
    assert parse_value(text) == value


@pytest.mark.parametrize(
    "text, value",
    [
        ("Additive(units=5)", scores.Additive(5)),
        ("DotProduct() + ALiBi()", DotProduct() + ALiBi()),
        ("SoftCap(DotProduct(scaled=False), 30.0)", scores.SoftCap(DotProduct(False), 30.0)),
        ("Learned(11)", positions.Learned(11)),
        ("PreNorm(norm=rms_norm)", residuals.PreNorm(norm="rms_norm")),
        ("PreNorm(norm=RMSNorm(1e-5))", residuals.PreNorm(norm=norms.RMSNorm(1e-5))),
    ],
)
def test_a_value_with_weights_is_a_new_layer(text, value):
    assert repr(parse_value(text)) == repr(value)


def model(score="scaled_dot", pattern="dense", depth="recurrent"):
    """Stand for a function of `keras_attn.models`."""
    return score, patterns.get(pattern), depth


def test_assignments_become_arguments():
    arguments = build_model(model, {}, ("score=additive", "pattern=Local(7)", "depth=act"))
    assert arguments == ("additive", Local(7), "act")


@pytest.mark.parametrize(
    "assignment, said",
    [
        ("pattern=Local(", "--with pattern must be a value that fits: Local( is no expression"),
        ("pattern=SlidingWindow(5)", "SlidingWindow is no class of an axis; did you mean Local?"),
        ("pattern=exit(5)", "exit is no class of an axis"),
        ("pattern=Local.mro()", "Local.mro is no class of an axis"),
        ("pattern=__import__('os')", "__import__ is no class of an axis"),
        ("pattern=Local(5).window", "Local(5).window, which is neither a literal nor a class"),
        ("pattern=Local(*[5])", "*[5], which is neither"),
        ("pattern=Local(**{'window': 5})", "which is neither"),
        ("pattern=[Local(2) for i in (1, 2)]", "which is neither"),
        ("pattern=(lambda: 5)()", "is no class of an axis"),
        ("pattern=Local(2) - Local(3)", "Local(2) - Local(3), which is neither"),
        ("pattern=Local()", "Local() does not fit its classes, which say:"),
        ("pattern=Local(0)", "must be a value that fits: `window` must be"),
        ("pattern=Local(3) + ALiBi()", "does not fit its classes"),
        ("pattern=SlidingWindow", "Did you mean `patterns.Local(window=...)`?"),
        ("window=5", "--with must name an argument of model, which has score, pattern, depth"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_in_a_sentence(assignment, said):
    with pytest.raises(ValueError) as error:
        build_model(model, {}, (assignment,))
    assert said in str(error.value) and "\n" not in str(error.value)
    assert "Received: " in str(error.value)
