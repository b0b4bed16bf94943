"""Overrides of a converted model: another depth or residual with the weights of the checkpoint."""

import checkpoint_folders
import numpy as np
import pytest
from checkpoint_folders import difference

from keras_attn import depth, patterns, residuals
from keras_attn.convert import from_hugging_face


@pytest.fixture
def convert(checkpoint):
    """Function from a golden file's name and overrides to the model and the arrays."""

    def convert(name, **overrides):
        case = checkpoint(name)
        model = from_hugging_face(case.folder, **overrides)[0] if overrides else case.model
        return model, case.arrays

    return convert


def outputs(model, arrays):
    inputs = {k.removeprefix("input_"): v for k, v in arrays.items() if k.startswith("input_")}
    return np.array(model(inputs))


def streams(stack, x):
    """Compute reversible blocks by their formula, and the norm of the streams' mean."""
    first = second = x
    for block in stack.blocks:
        first = first + block.attention(*[block.attention_residual.norm(second)] * 2)
        second = second + block.feed_forward(block.feed_forward_residual.norm(first))
    return stack.norm((first + second) / 2)


@pytest.mark.slow
def test_reversible_blocks_have_the_weights_of_the_checkpoint(convert):
    model, arrays = convert("gpt2", depth="reversible")
    assert isinstance(model.depth, depth.Reversible)
    before, _ = convert("gpt2")
    for ours, theirs in zip(model.get_weights(), before.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    ids = arrays["input_token_ids"]
    x = model.position(model.embedding(ids))
    expected = model.embedding.logits(streams(before.depth, x))
    np.testing.assert_allclose(model({"token_ids": ids}), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_a_function_of_the_blocks_makes_the_depth(convert):
    """Blocks that are computed again in training have the outputs of before."""
    changes = {"depth": lambda blocks: depth.Stack(blocks, remat=True)}
    model, arrays = convert("bert_classifier", **changes)
    assert model.encoder.remat
    assert difference(model, arrays) <= checkpoint_folders.TOLERANCE


@pytest.mark.slow
def test_another_residual_keeps_the_weights_and_the_kind_of_the_norms(convert):
    before, arrays = convert("marian")
    model, _ = convert("marian", residual="pre_norm")
    norm = before.encoder.blocks[0].residual.norm
    for block, theirs in zip(model.encoder.blocks, before.encoder.blocks, strict=True):
        assert isinstance(block.residual, residuals.PreNorm)
        assert block.residual.norm.epsilon == norm.epsilon
        for ours, old in zip(block.get_weights(), theirs.get_weights(), strict=True):
            np.testing.assert_array_equal(ours, old)
    stacks = model.encoder, model.decoder
    for stack in stacks:  # a pre-norm stack ends with a norm, which the checkpoint lacks
        stack.norm.set_weights([np.ones(12, "float32"), np.zeros(12, "float32")])
    new = {id(weight) for stack in stacks for weight in stack.norm.weights}
    kept = [weight.numpy() for weight in model.weights if id(weight) not in new]
    assert len(kept) == len(before.get_weights())
    assert np.isfinite(outputs(model, arrays)).all()


@pytest.mark.parametrize(
    "overrides, message",
    [
        ({"depth": "reversible"}, "must give a `TransformerBlock` with `residual='pre_norm'`"),
        ({"depth": "revers"}, "`depth` must be reversible, stack or a function of the blocks"),
        pytest.param(
            {"depth": lambda blocks: 3},
            "`depth` must be a function from blocks to a depth",
            marks=pytest.mark.slow,
        ),
        pytest.param({"residual": "norm_first"}, "Unknown residual", marks=pytest.mark.slow),
    ],
)
def test_changes_that_do_not_fit_are_refused(convert, overrides, message):
    with pytest.raises(ValueError, match=message):
        convert("bert", **overrides)


@pytest.mark.slow
def test_a_window_over_the_whole_text_changes_no_output(convert):
    """A window of three tokens does."""
    model, arrays = convert("bert", pattern=patterns.Local(64, causal=False))
    assert difference(model, arrays) <= checkpoint_folders.TOLERANCE
    narrow, _ = convert("bert", pattern=patterns.Local(2, causal=False))
    assert isinstance(narrow.encoder.blocks[1].attention.pattern, patterns.Local)
    assert difference(narrow, arrays) > 1e-3
