import inspect

import keras
import numpy as np
import oracles
import pytest
from keras import ops

from keras_attn.models import gpt
from keras_attn.patterns import AdaptiveSpan

SIZES = {
    "vocabulary_size": 17,
    "num_layers": 2,
    "num_heads": 3,
    "hidden_dim": 6,
    "intermediate_dim": 11,
    "max_length": 7,
}
IDS = np.array([[5, 7, 16, 9, 3], [8, 4, 3, 0, 0]])


@pytest.fixture(scope="module")
def model():
    model = gpt(**SIZES)
    oracles.scramble(model, scale=0.5)
    return model


def test_predict_has_the_signature_of_keras(model):
    assert inspect.signature(type(model).predict) == inspect.signature(keras.Model.predict)


def test_output_equals_the_formula(model):
    table = oracles.numpy_of(model.embedding.table)
    x = table[IDS] + oracles.numpy_of(model.position.table)[:5]
    allowed = (IDS != 0)[:, None, None] & oracles.causal(5, 5)
    for layer in model.depth.blocks:
        x = oracles.block(
            x,
            oracles.block_weights(layer),
            allowed,
            pre_norm=True,
            epsilon=1e-5,
            activation=oracles.gelu_tanh,
        )
    x = oracles.layer_norm(x, *oracles.norm_weights(model.depth.norm), 1e-5)
    np.testing.assert_allclose(model({"token_ids": IDS}), x @ table.T, atol=1e-4)


def test_later_positions_have_no_influence(model):
    before = np.asarray(model({"token_ids": IDS}))
    changed = IDS.copy()
    changed[:, 3:] = 12
    after = np.asarray(model({"token_ids": changed}))
    np.testing.assert_array_equal(after[:, :3], before[:, :3])
    assert np.all(after[:, 3:] != before[:, 3:])


@pytest.mark.parametrize("chunks", [[1] * 5, [3, 2]], ids=str)
def test_cached_steps_equal_one_pass(model, chunks):
    whole = np.asarray(model({"token_ids": IDS}))
    constants, cache = model.start({"token_ids": IDS}, max_length=7)
    start = 0
    for length in chunks:
        tokens = IDS[:, start : start + length]
        positions = ops.arange(start, start + length)
        logits, cache = model.step(tokens, constants, cache, positions)
        real = tokens != 0
        np.testing.assert_allclose(
            np.asarray(logits)[real], whole[:, start : start + length][real], atol=1e-4
        )
        start += length


def test_last_selects_the_logits_of_one_token(model):
    whole = np.asarray(model({"token_ids": IDS}))
    constants, cache = model.start({"token_ids": IDS}, max_length=7)
    last = np.array([[4], [2]])
    logits, _ = model.step(IDS, constants, cache, ops.arange(5), last=last)
    assert logits.shape == (2, 1, 17)
    np.testing.assert_allclose(logits[:, 0], whole[[0, 1], last[:, 0]], atol=1e-4)


def test_text_longer_than_max_length_raises(model):
    ids = np.full((1, 7), 5)
    assert model({"token_ids": ids}).shape == (1, 7, 17)
    with pytest.raises(ValueError, match="length 8, a table of 7"):
        model({"token_ids": np.full((1, 8), 5)})


@pytest.mark.parametrize("num_layers", [0, "2"])
def test_invalid_num_layers_raises(num_layers):
    with pytest.raises(ValueError, match=f"num_layers={num_layers!r}"):
        gpt(**{**SIZES, "num_layers": num_layers})


def test_each_layer_has_its_own_spans():
    span = AdaptiveSpan(5, ramp=2)
    model = gpt(11, num_layers=2, num_heads=2, hidden_dim=4, intermediate_dim=5, pattern=span)
    patterns = [block.attention.pattern for block in model.depth.blocks]
    assert len({*map(id, (span, *patterns))}) == 3
    assert all(pattern.max_span == 5 for pattern in patterns)
