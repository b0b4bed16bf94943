import numpy as np
import oracles
import pytest
from models import pages

from keras_attn.losses import AuxiliaryLosses
from keras_attn.models import deep_char_transformer


@pytest.fixture(scope="module")
def model():
    return pages.scrambled(deep_char_transformer(**pages.SIZES, max_length=16))


def test_oracle(model):
    """A plain stack, to whose every layer the positions of that layer are added first."""
    x, table = pages.embedded(model, pages.IDS)
    formula = pages.scaled_dot(oracles.causal(pages.T, pages.T))
    for layer in model.depth.blocks:
        x = x + oracles.numpy_of(layer.position.table)[: pages.T]
        x = pages.post_norm(x, pages.sublayers(layer.block, formula))
    np.testing.assert_allclose(model({"token_ids": pages.IDS}), x @ table.T, atol=1e-4)


def test_no_leak(model):
    pages.check_no_leak(model)


def test_steps_and_generation_equal_one_pass(model):
    pages.check_steps(model)
    pages.check_generation(model)


def test_a_text_longer_than_the_tables(model):
    with pytest.raises(ValueError, match="length 17, max_length=16"):
        model({"token_ids": np.ones((1, 17), "int32")})


def test_auxiliary_losses_reach_every_layer(model):
    trained = AuxiliaryLosses(model, total_steps=100)
    assert len(trained.heads) == 2 * pages.L - 1
    layers = trained._run({"token_ids": pages.IDS})[1]
    assert [tuple(layer.shape) for layer in layers] == [(2, pages.T, pages.D)] * pages.L
