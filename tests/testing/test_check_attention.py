"""The kit finds nothing in layers that are right, and in each broken one what is broken."""

import keras
import pytest
from testing import toys

from keras_attn.layers import MultiHeadAttention
from keras_attn.patterns import BlockLocal1D, BlockLocal2D, Fixed, Local, PerHead, Strided
from keras_attn.testing import check_attention

# What a pattern, a score or shared heads can break.
OF_THE_PLAN = [
    *("formula", "limits", "alignment", "no_leak", "padding", "empty_rows", "scores"),
    "gradients",
]
# What any mistake in who meets whom may show in.
OF_MASKS = [
    *("building", "formula", "limits", "alignment", "no_leak", "padding", "implicit_mask"),
    *("empty_rows", "scores", "float_mask", "mask_arguments"),
]


def ours(**arguments):
    return MultiHeadAttention(2, 4, implementation="blockwise", **arguments)


def found_by(report):
    return {defect.check for defect in report.defects}


def test_our_attention_has_no_defect():
    report = check_attention(ours(pattern="causal", dropout=0.1))
    report.raise_if_any()
    assert report.skipped == {}
    assert {"fresh_process", "export", "formula", "no_leak"} <= set(report.checked)


@pytest.mark.parametrize(
    "layer",
    [
        ours(),
        ours(pattern=Local(5)),
        ours(pattern=Strided(4), num_key_value_heads=1),
        ours(pattern=Fixed(4, 1)),
        ours(pattern=BlockLocal1D(4, lookback=2)),
        ours(pattern=BlockLocal2D((4, 6), (2, 2), (1, 1))),
        ours(pattern=PerHead([Local(3), Strided(4)])),
        ours(pattern=Local(3) | Fixed(4, 1)),
        MultiHeadAttention(2, 4, pattern="causal", score="additive", use_bias=False),
        MultiHeadAttention(2, 4, value_dim=3, output_shape=5),
    ],
    ids=lambda layer: repr(layer.pattern),
)
def test_our_patterns_and_scores_have_no_defect(layer):
    report = check_attention(layer, only=OF_THE_PLAN, length=24)
    report.raise_if_any()
    assert {"formula", "padding", "scores"} <= set(report.checked)


def test_known_defects_of_keras():
    """Those of Keras 3.15; a later one that mends some of them may shorten the list."""
    report = check_attention(keras.layers.MultiHeadAttention(2, 4), slow=False)
    assert found_by(report) == {
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


def test_the_pattern_of_a_layer_can_be_given():
    layer = keras.layers.MultiHeadAttention(2, 4, sliding_window=3)
    checks = ["formula", "no_leak"]
    right = check_attention(layer, pattern=Local(3, causal=False), only=checks)
    wrong = check_attention(layer, pattern=Local(2, causal=False), only=checks)
    assert found_by(wrong) == {"formula", "no_leak"}
    # Keras's own window counts from the first key, so it differs where there are more keys.
    assert {d.check for d in right.defects} <= {"formula"}


def test_a_layer_that_does_all_right_has_no_defect():
    report = check_attention(toys.Attention(), slow=False)
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


@pytest.mark.parametrize("broken", BROKEN, ids=lambda toy: toy.__name__)
def test_each_broken_layer_is_found_by_the_checks_meant_for_it(broken):
    report = check_attention(broken(), length=7, only=[*OF_MASKS, *BROKEN[broken]])
    assert found_by(report) == BROKEN[broken]


def test_a_lost_argument_is_found():
    report = check_attention(toys.LosesHeads(num_heads=3), only=["config"])
    assert found_by(report) == {"config"}
    assert "`num_heads`" in str(report)


def test_the_layer_itself_is_only_built():
    layer = MultiHeadAttention(2, 4)
    layer.build((None, None, 6), (None, None, 6))
    before = layer.get_weights()
    check_attention(layer, only=["gradients", "padding"]).raise_if_any()
    assert all((a == b).all() for a, b in zip(before, layer.get_weights(), strict=True))
