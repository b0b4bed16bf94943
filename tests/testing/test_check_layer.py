"""check_layer over our layers, and over layers with one defect each."""

import keras
import numpy as np
import pytest
from marks import slow, slow_but
from testing import toys

from keras_attn.depth import ACT, Reversible, Stack
from keras_attn.layers import (
    AdaptiveEmbedding,
    AdaptiveSoftmax,
    AnswerHead,
    ConvolutionBlock,
    CrossAttentionBlock,
    EmbeddingProjection,
    FeedForward,
    GatedFeedForward,
    HeadTransform,
    MaskedTokenHead,
    MixtureOfExperts,
    MultiHeadAttention,
    ParallelBlock,
    PatchEmbedding,
    PixelEmbedding,
    PositionedBlock,
    SegmentEmbedding,
    SeparableConvTransition,
    TokenEmbedding,
    TransformedHead,
    TransformerBlock,
)
from keras_attn.norms import DyT, RMSNorm
from keras_attn.positions import Axial, AxialRotary, Learned
from keras_attn.residuals import Gate, PostNorm, SandwichNorm
from keras_attn.testing import check_layer

X, CONTEXT = (2, 5, 6), (2, 7, 6)
IDS = np.array([[5, 7, 1, 3, 2], [8, 3, 2, 0, 0]], "int32")
SEGMENTS = np.array([[0, 0, 1, 1, 1], [0, 1, 1, 0, 0]], "int32")


def block(index=0, **arguments):
    return TransformerBlock(MultiHeadAttention(2, 3), FeedForward(7), dropout=0.1, **arguments)


OURS = {
    "feed forward": lambda: (FeedForward(7, dropout=0.1, chunks=3), X),
    "token embedding": lambda: (TokenEmbedding(11, 6), IDS),
    "segment embedding": lambda: (SegmentEmbedding(2), X, SEGMENTS),
    "masked token head": lambda: (MaskedTokenHead(TokenEmbedding(11, 6)), X),
    "block with a context": lambda: (
        block(cross_attention=MultiHeadAttention(2, 3), residual="pre_norm"),
        X,
        CONTEXT,
    ),
    "stack": lambda: (Stack(block, 2), X),
    "learned": lambda: (Learned(16), X),
    "post norm": lambda: (PostNorm(), X, X),
    "experts": lambda: (MixtureOfExperts(GatedFeedForward(7, dropout=0.1), 3, 2), X),
    "dyt": lambda: (DyT(), X),
    "patch embedding": lambda: (PatchEmbedding(2, 6, class_token=True), (2, 4, 6, 3)),
    "block with a sandwich": lambda: (block(residual=SandwichNorm(RMSNorm())), X),
    "block with a gate": lambda: (
        TransformerBlock(
            MultiHeadAttention(2, 4, pattern="causal", position="rotary"),
            FeedForward(7, chunks=2),
            residual=Gate(bias=1.0),
        ),
        X,
    ),
    "positioned block": lambda: (PositionedBlock(block(), Learned(16)), X),
    "block of a context": lambda: (
        CrossAttentionBlock(MultiHeadAttention(3, 4), FeedForward(11)),
        *(X, (2, 7, 9)),
    ),
    "parallel block": lambda: (
        ParallelBlock(MultiHeadAttention(2, 3), FeedForward(7), residual="pre_norm"),
        X,
    ),
    "block beside a convolution": lambda: (
        ConvolutionBlock(MultiHeadAttention(2, 3), FeedForward(7), groups=2, dropout=0.1),
        X,
    ),
    "transformed head": lambda: (
        TransformedHead(HeadTransform(7, norm="layer_norm"), AnswerHead()),
        X,
    ),
    "embedding projection": lambda: (EmbeddingProjection(11), X),
    "reversible": lambda: (Reversible(lambda index: block(residual="pre_norm"), 1), X),
    "adaptive computation time": lambda: (
        ACT(block(residual="pre_norm"), 3, position="timestep"),
        X,
    ),
    "adaptive embedding": lambda: (AdaptiveEmbedding(23, 12, [5, 11], 2), IDS),
    "losses of an adaptive softmax": lambda: (
        AdaptiveSoftmax(AdaptiveEmbedding(23, 12, [5, 11], 2)),
        *((2, 5, 12), 3 * IDS % 23),  # in all three clusters, or no gradient reaches the others
    ),
    "pixel embedding": lambda: (PixelEmbedding(256, 3, 5), IDS * 1000 + 1),
    "convolution": lambda: (SeparableConvTransition(7, dropout=0.1), X),
    "gated feed forward": lambda: (GatedFeedForward(7, dropout=0.1), X),
    "axial rotary": lambda: (AxialRotary((3, 5)), (2, 3, 15, 12)),
    "axial": lambda: (Axial((3, 4), (2, 4)), X),
}


# Checks that do not apply, and those for which the folder of the layer has a closer test.
SKIPPED = {
    "stack": ["gradients", "precision"],  # those of "block with a context"
    "patch embedding": ["unknown_sizes", "saving"],  # with images of unknown size
    "adaptive computation time": ["precision", "unknown_sizes", "saving"],
    "reversible": ["precision", "gradients"],
    "losses of an adaptive softmax": ["unknown_sizes", "saving"],
    "convolution": ["saving"],
    "block of a context": ["gradients"],  # those of "block with a context"
    "parallel block": ["saving"],
    "axial rotary": ["precision", "unknown_sizes", "implicit_mask", "batch_independence"],
}
COMPILED = ("gated feed forward", "experts")


@pytest.mark.parametrize("name", slow_but(["token embedding"], OURS))
def test_our_layers_have_no_defect(name):
    # `unknown_sizes` is a graph.
    skip = ["graph", *SKIPPED.get(name, ()), *([] if name in COMPILED else ["xla"])]
    check_layer(*OURS[name](), skip=skip, slow=False).raise_if_any()


BROKEN = {
    toys.AddsBatchMean: {"batch_independence"},
    toys.ReusesDropout: {"repeatable"},
    toys.CountsInLowPrecision: {"precision"},
    toys.GraphDiffers: {"graph", "xla", "unknown_sizes"},
}


@pytest.mark.parametrize(
    "broken", slow_but([toys.ReusesDropout], BROKEN), ids=lambda toy: toy.__name__
)
def test_each_defect_fails_exactly_its_checks(broken):
    report = check_layer(broken(), X, skip=["implicit_mask"], slow=False)
    assert {defect.check for defect in report.defects} == BROKEN[broken]


@pytest.mark.parametrize(
    "broken, check",
    [
        (toys.FixesBatch, "unknown_sizes"),
        (toys.ForgetsAState, "config"),
        (toys.CallsPython, "gradients"),
        slow(toys.ForgetsAState, "saving"),
        slow(toys.CallsPython, "export"),
        slow(toys.CallsPython, "xla"),
        slow(keras.layers.ZeroPadding1D, "implicit_mask"),
    ],
)
def test_a_single_check_finds_its_defect(broken, check):
    report = check_layer(broken(), X, only=[check])
    assert {defect.check for defect in report.defects} == {check}


@pytest.mark.slow
def test_fresh_process_check_finds_state_outside_the_file(monkeypatch):
    monkeypatch.setattr(toys.ReadsAGlobal, "factor", 2.0)
    report = check_layer(toys.ReadsAGlobal(), X, only=["saving", "fresh_process"])
    assert {defect.check for defect in report.defects} == {"fresh_process"}


def test_a_check_that_does_not_apply_is_reported_as_skipped():
    report = check_layer(TokenEmbedding(11, 6), IDS, only=["implicit_mask"])
    assert report.ok and report.checked == ()
    assert report.skipped == {"implicit_mask": "the first input is not a sequence of vectors"}


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: check_layer("dense", X), "`layer` must be a Keras layer.*'dense'"),
        (lambda: check_layer(FeedForward(7)), "`inputs` must be.*Received: inputs=()"),
        (lambda: check_layer(FeedForward(7), X, only=["speed"]), "`only`.*speed.*Known.*export"),
        (lambda: check_layer(FeedForward(7), X, skip="graph"), "`skip` must be a list.*'graph'"),
    ],
)
def test_invalid_arguments_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call()
