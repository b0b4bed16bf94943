import numpy as np
import oracles
import pytest
from models import formulas

from keras_attn.losses import AuxiliaryLosses
from keras_attn.models import deep_char_transformer


@pytest.fixture(scope="module")
def model():
    return formulas.scrambled(deep_char_transformer(**formulas.SIZES, max_length=16))


def test_output_equals_the_formula(model):
    """Each layer adds its own positions, then computes a plain block."""
    x, table = formulas.embedded(model, formulas.IDS)
    formula = formulas.scaled_dot(oracles.causal(formulas.T, formulas.T))
    for layer in model.depth.blocks:
        x = x + oracles.numpy_of(layer.position.table)[: formulas.T]
        x = formulas.post_norm(x, formulas.sublayers(layer.block, formula))
    np.testing.assert_allclose(model({"token_ids": formulas.IDS}), x @ table.T, atol=1e-4)


def test_later_tokens_have_no_influence(model):
    formulas.check_no_leak(model)


def test_steps_and_generation_equal_one_pass(model):
    formulas.check_steps(model)
    formulas.check_generation(model)


def test_text_longer_than_the_tables_raises(model):
    with pytest.raises(ValueError, match="length 17, a table of 16"):
        model({"token_ids": np.ones((1, 17), "int32")})


def test_auxiliary_losses_reach_every_layer(model):
    trained = AuxiliaryLosses(model, total_steps=100)
    assert len(trained.heads) == 2 * formulas.L - 1
    layers = trained._run({"token_ids": formulas.IDS})[1]
    assert [tuple(layer.shape) for layer in layers] == [(2, formulas.T, formulas.D)] * formulas.L
