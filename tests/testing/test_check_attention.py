"""check_attention over our attention, that of Keras, and layers with one defect each."""

import keras
import pytest
from testing import toys

from keras_attn.layers import DifferentialAttention, MultiHeadAttention
from keras_attn.patterns import (
    BlockLocal1D,
    BlockLocal2D,
    Causal,
    Dilated,
    Fixed,
    Global,
    Local,
    PerHead,
    Prefix,
    Random,
    Sinks,
    Strided,
)
from keras_attn.positions import AxialRotary, Rotary, YaRN
from keras_attn.scores import (
    FAVOR,
    ALiBi,
    Cosine,
    Disentangled,
    DotProduct,
    Kernel,
    SoftCap,
    T5Bias,
)
from keras_attn.testing import check_attention

# Checks that depend on the pattern, the score and shared heads.
PATTERN_CHECKS = ["formula", "padding"]
MORE_PATTERN_CHECKS = ["limits", "alignment", "no_leak", "empty_rows", "scores", "gradients"]
# Checks of every broken layer, and of those with broken masks.
EVERY_CHECK = ["building", "formula", "limits", "alignment", "padding", "float_mask"]
MASK_CHECKS = ["no_leak", "implicit_mask", "empty_rows", "scores", "mask_arguments"]


def attention_layer(**arguments):
    return MultiHeadAttention(2, 4, implementation="blockwise", **arguments)


def recent_layers():
    """Layers that combine the values since 2020."""
    both_sides = T5Bias(8, 12, bidirectional=True)
    first = {"pattern": Local(3, causal=False) | Global(2), "position": Rotary(1e4, "half", 0.5)}
    drawn = {"pattern": Local(4) | Random(2, 1, 64, causal=True), "num_key_value_heads": 1}
    prefix = {"pattern": Causal() | Prefix(2), "qk_norm": "rms_norm"}
    spread = {"pattern": Dilated(2, 2), "position": AxialRotary((3, 5)), "use_gate": True}
    return [
        attention_layer(score=DotProduct() + ALiBi() + both_sides, **first),
        attention_layer(
            score=SoftCap(Cosine(), 3.0), position=Rotary(scaling=YaRN(4, 16)), **drawn
        ),
        attention_layer(score=FAVOR(6), **prefix),
        attention_layer(score=Kernel("relu"), sinks=True, qk_norm="dyt", **spread),
    ]


def failed_checks(report):
    return {defect.check for defect in report.defects}


def test_our_attention_has_no_defect():
    report = check_attention(MultiHeadAttention(2, 4, pattern="causal", dropout=0.1))
    report.raise_if_any()
    assert report.skipped == {}
    assert {"fresh_process", "export", "formula", "no_leak"} <= set(report.checked)


@pytest.mark.parametrize(
    "layer",
    [
        attention_layer(),
        attention_layer(pattern=Local(5)),
        attention_layer(pattern=Strided(4), num_key_value_heads=1),
        attention_layer(pattern=Fixed(4, 1)),
        attention_layer(pattern=BlockLocal1D(4, lookback=2)),
        attention_layer(pattern=BlockLocal2D((3, 4), (2, 2), (1, 1))),
        attention_layer(pattern=PerHead([Local(3), Strided(4)])),
        attention_layer(pattern=Local(3) | Fixed(4, 1)),
        MultiHeadAttention(2, 4, pattern="causal", score="additive", use_bias=False),
        MultiHeadAttention(2, 4, value_dim=3, output_shape=5),
        MultiHeadAttention(2, 4, pattern="causal", score=Kernel()),
        MultiHeadAttention(2, 4, score=Disentangled(4, 9)),
        recent_layers()[0],
        *(pytest.param(layer, marks=pytest.mark.slow) for layer in recent_layers()[1:]),
    ],
    ids=lambda layer: repr(layer.pattern),
)
def test_our_patterns_and_scores_have_no_defect(layer):
    report = check_attention(layer, only=PATTERN_CHECKS)
    report.raise_if_any()
    assert set(report.checked) == set(PATTERN_CHECKS)


@pytest.mark.parametrize(
    "layer",
    [
        pytest.param(
            attention_layer(pattern=PerHead([Local(3), Strided(4)])), marks=pytest.mark.slow
        ),
        pytest.param(
            attention_layer(pattern=Fixed(4, 1), num_key_value_heads=1), marks=pytest.mark.slow
        ),
        MultiHeadAttention(2, 4, pattern="causal", score="additive", use_bias=False),
    ],
    ids=lambda layer: repr(layer.pattern),
)
def test_our_sparse_layers_have_no_defect(layer):
    report = check_attention(layer, only=MORE_PATTERN_CHECKS)
    report.raise_if_any()
    assert report.skipped == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "layer",
    [
        attention_layer(pattern=Sinks(2, 3), position="rotary"),
        DifferentialAttention(2, 4, 1, pattern=Local(3), sinks=True, use_gate=True),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_layers_without_the_plain_formula_have_no_defect(layer):
    report = check_attention(layer, only=["config", "padding", "empty_rows", "scores"])
    report.raise_if_any()
    assert report.skipped == {}


@pytest.mark.slow
@pytest.mark.parametrize("layer", recent_layers(), ids=lambda layer: repr(layer.pattern))
def test_recent_values_pass_every_check_together(layer):
    check_attention(layer).raise_if_any()


def test_known_defects_of_keras():
    """Defects of Keras 3.15; a later version may fix some of them and shorten the list."""
    compiled = ["graph", "xla", "unknown_sizes", "saving"]
    report = check_attention(keras.layers.MultiHeadAttention(2, 4), skip=compiled, slow=False)
    # On a processor without AVX-512 it fails the check "scores" too, by rounding.
    assert failed_checks(report) - {"scores"} == {
        "config",  # flash_attention
        "alignment",
        "empty_rows",
        "float_mask",
        "mask_arguments",  # query_mask
        "precision",
        "large_logits",
    }
    text = str(report)
    assert text.startswith("keras.src.layers.attention.multi_head_attention.MultiHeadAttention: ")
    for part in ("`flash_attention`", "`query_mask`", "acts inverted", "not aligned to the last"):
        assert part in text


def test_the_pattern_argument_is_checked_against_the_layer():
    layer = keras.layers.MultiHeadAttention(2, 4, sliding_window=3)
    checks = ["formula", "no_leak"]
    right = check_attention(layer, pattern=Local(3, causal=False), only=checks)
    wrong = check_attention(layer, pattern=Local(2, causal=False), only=checks)
    assert failed_checks(wrong) == {"formula", "no_leak"}
    # Keras's own window counts from the first key, so it differs where there are more keys.
    assert {d.check for d in right.defects} <= {"formula"}


def test_a_correct_layer_has_no_defect():
    report = check_attention(toys.Attention(), length=7, slow=False)
    report.raise_if_any()
    assert report.skipped == {}


BROKEN = {
    toys.BuildsLate: {"building"},
    toys.ScalesByWidth: {"formula"},
    toys.MixesHeads: {"formula"},
    toys.LeaksWithScores: {"no_leak", "scores", "formula"},
    toys.LeaksWithDropout: {"no_leak"},
    toys.AlignsToTheFirstKey: {"alignment"},
    toys.ForgetsPadding: {"padding", "implicit_mask", "empty_rows", "mask_arguments", "formula"},
    toys.PadsSoftly: {"padding", "implicit_mask", "empty_rows", "formula"},
    toys.ForgetsKerasMasks: {"implicit_mask"},
    toys.DestroysKerasMasks: {"implicit_mask"},
    toys.SpreadsEmptyRows: {"empty_rows"},
    toys.BreaksOnEmptyRows: {"empty_rows"},
    toys.ChangesWithScores: {"scores"},
    toys.ReadsFloatsAsBooleans: {"float_mask"},
    toys.IgnoresQueryMask: {"mask_arguments"},
    toys.SpreadsMasksOverHeads: {"mask_arguments", "formula", "empty_rows"},
    toys.RoundsWeights: {"precision"},
    toys.OverflowsInFloat16: {"large_logits"},
    toys.HalvesAGradient: {"gradients"},
}


# One for each check of masks.
WITH_MASKS = {
    toys.LeaksWithScores,
    toys.PadsSoftly,
    toys.ForgetsKerasMasks,
    toys.BreaksOnEmptyRows,
    toys.IgnoresQueryMask,
}
FAST = {toys.LeaksWithScores, toys.HalvesAGradient, toys.IgnoresQueryMask}


@pytest.mark.parametrize(
    "broken",
    [pytest.param(toy, marks=[pytest.mark.slow] * (toy not in FAST)) for toy in BROKEN],
    ids=lambda toy: toy.__name__,
)
def test_each_defect_fails_exactly_its_checks(broken):
    checks = [*EVERY_CHECK, *(MASK_CHECKS if broken in WITH_MASKS else ()), *BROKEN[broken]]
    report = check_attention(broken(), length=7, only=checks)
    assert failed_checks(report) == BROKEN[broken]


def test_config_check_finds_a_missing_argument():
    report = check_attention(toys.LosesHeads(num_heads=3), only=["config"])
    assert failed_checks(report) == {"config"}
    assert "`num_heads`" in str(report)


def test_checks_do_not_change_the_layer():
    layer = MultiHeadAttention(2, 4)
    layer.build((None, None, 6), (None, None, 6))
    before = layer.get_weights()
    check_attention(layer, length=7, only=["gradients", "padding"]).raise_if_any()
    assert all((a == b).all() for a, b in zip(before, layer.get_weights(), strict=True))
