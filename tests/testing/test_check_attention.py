"""check_attention over our attention, that of Keras, and layers with one defect each."""

import keras
import pytest
from testing import toys

from keras_attn.layers import DifferentialAttention, MultiHeadAttention
from keras_attn.patterns import Global, Local
from keras_attn.positions import Rotary
from keras_attn.scores import ALiBi, DotProduct, SoftCap
from keras_attn.testing import check_attention

# Checks of every broken layer, and of those with broken masks.
EVERY_CHECK = ["building", "formula", "padding"]
MASK_CHECKS = ["no_leak", "implicit_mask", "empty_rows", "scores", "mask_arguments"]
# Checks that find nothing else in a graph or a file; those of our attention run them.
COMPILED = ["graph", "xla", "unknown_sizes", "saving"]


def failed_checks(report):
    return {defect.check for defect in report.defects}


@pytest.mark.slow
def test_our_attention_has_no_defect():
    report = check_attention(MultiHeadAttention(2, 4, pattern="causal", dropout=0.1))
    report.raise_if_any()
    assert report.skipped == {}
    assert {"fresh_process", "export", "formula", "no_leak"} <= set(report.checked)


@pytest.mark.slow
def test_the_numbers_of_values_of_many_axes_together_are_right():
    """All pairs of such values are in tests/layers/test_combinations.py, their files in models."""
    layer = MultiHeadAttention(
        *(2, 4),
        score=SoftCap(DotProduct() + ALiBi(), 3.0),
        pattern=Local(3, causal=False) | Global(2),
        position=Rotary(1e4, "half", 0.5),
        num_key_value_heads=1,
        use_gate=True,
        sinks=True,
        qk_norm="dyt",
        implementation="blockwise",
    )
    checks = ["formula", "padding", "empty_rows"]
    report = check_attention(layer, length=7, only=checks)
    report.raise_if_any()
    assert report.skipped == {} and len(report.checked) == len(checks)


@pytest.mark.slow
def test_a_layer_without_the_plain_formula_has_no_defect():
    layer = DifferentialAttention(2, 4, 1, pattern=Local(3), sinks=True, use_gate=True)
    report = check_attention(layer, length=7, only=["padding", "empty_rows", "scores"])
    report.raise_if_any()
    assert report.skipped == {}


@pytest.mark.slow
def test_known_defects_of_keras():
    """Defects of Keras 3.15; a later version may fix some of them and shorten the list."""
    layer = keras.layers.MultiHeadAttention(2, 4)
    report = check_attention(layer, length=7, skip=COMPILED, slow=False)
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


@pytest.mark.slow
def test_a_correct_layer_has_no_defect():
    report = check_attention(toys.Attention(), length=7, skip=COMPILED, slow=False)
    report.raise_if_any()
    assert report.skipped == {}


BROKEN = {
    toys.BuildsLate: {"building"},
    toys.ScalesByWidth: {"formula"},
    toys.LeaksWithScores: {"no_leak", "scores", "formula"},
    toys.LeaksWithDropout: {"no_leak"},
    toys.AlignsToTheFirstKey: {"alignment"},
    toys.ForgetsPadding: {"padding", "implicit_mask", "empty_rows", "mask_arguments", "formula"},
    toys.ForgetsKerasMasks: {"implicit_mask"},
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
WITH_MASKS = {toys.LeaksWithScores, toys.ForgetsPadding, toys.BreaksOnEmptyRows}


@pytest.mark.slow
@pytest.mark.parametrize("broken", BROKEN, ids=lambda toy: toy.__name__)
def test_each_defect_fails_exactly_its_checks(broken):
    checks = [*EVERY_CHECK, *(MASK_CHECKS if broken in WITH_MASKS else ()), *BROKEN[broken]]
    report = check_attention(broken(), length=7, only=checks)
    assert failed_checks(report) == BROKEN[broken]


def test_config_check_finds_a_missing_argument():
    report = check_attention(toys.LosesHeads(num_heads=3), only=["config"])
    assert failed_checks(report) == {"config"}
    assert "`num_heads`" in str(report)


@pytest.mark.slow
def test_checks_do_not_change_the_layer():
    layer = MultiHeadAttention(2, 4)
    layer.build((None, None, 6), (None, None, 6))
    before = layer.get_weights()
    check_attention(layer, length=7, only=["gradients"]).raise_if_any()
    assert all((a == b).all() for a, b in zip(before, layer.get_weights(), strict=True))
