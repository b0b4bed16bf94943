"""One block for all steps, against the paper's formulas; with halting, against an uncached loop."""

import math

import keras
import numpy as np
import oracles
import pytest
from keras import ops

from keras_attn.models import EncoderDecoder, universal_transformer

SIZES = {
    "vocabulary_size": 17,
    "num_layers": 2,
    "num_heads": 3,
    "hidden_dim": 6,
    "intermediate_dim": 11,
}
SOURCE = np.array([[5, 7, 16, 9, 3], [8, 4, 3, 0, 0], [12, 3, 0, 0, 0]])
TARGET = np.array([[2, 6, 10, 4], [2, 13, 11, 5], [2, 9, 0, 0]])
IDS = {"source_ids": SOURCE, "target_ids": TARGET}
SEED = 7  # of which texts differ from row to row, and steps from position to position
REAL = TARGET != 0


def made(**arguments):
    keras.utils.set_random_seed(SEED)
    model = universal_transformer(**{**SIZES, **arguments})
    random = np.random.default_rng(SEED)
    for weight in model.weights:
        # Small biases, or else each step forgets what it was given.
        scale = 0.8 if len(weight.shape) > 1 else 0.1
        weight.assign_add(random.normal(0.0, scale, weight.shape))
    for side in (model.encoder, model.decoder):
        if hasattr(side, "halting_unit"):  # some positions take few steps, and some many
            side.halting_unit.set_weights([oracles.random(6, 1, scale=2.0), np.array([0.0])])
    return model


def oracle(model):
    """Equations 4 to 8: positions are added before each step of each side's block."""
    table = oracles.numpy_of(model.embedding.table)

    def run(ids, layer, allowed, **context):
        x = np.zeros((*ids.shape, SIZES["hidden_dim"]))
        for b, i in np.ndindex(ids.shape):
            x[b, i] = math.sqrt(SIZES["hidden_dim"]) * table[ids[b, i]]
        for t in range(1, SIZES["num_layers"] + 1):
            for i in range(1, ids.shape[1] + 1):
                x[:, i - 1] += oracles.sinusoids(i, 6) + oracles.sinusoids(t, 6)
            x = oracles.block(x, oracles.block_weights(layer.block), allowed, **context)
        return x

    source_real = (SOURCE != 0)[:, None, None]
    context = run(SOURCE, model.encoder, source_real)
    allowed = REAL[:, None, None] & oracles.causal(4, 4)
    return (
        run(TARGET, model.decoder, allowed, context=context, context_allowed=source_real) @ table.T
    )


def test_output_equals_the_formula():
    model = made()
    np.testing.assert_allclose(model(IDS), oracle(model), atol=1e-4)


@pytest.mark.slow
def test_the_ponder_losses_of_both_sides_are_added():
    model = made(depth="act", ponder_loss=0.5)
    model(IDS)
    assert len(model.losses) == 2 and all(float(loss) > 0.5 for loss in model.losses)
    plain = made()
    plain(IDS)
    assert plain.losses == []


@pytest.mark.slow
def test_parts_and_their_file():
    model = made(depth="act", transition="separable_conv", halting_bias=-3.0)
    assert isinstance(model, EncoderDecoder) and model.position is None
    assert model.encoder.block.feed_forward.causal is False
    assert model.decoder.block.feed_forward.causal is True
    assert float(model.encoder.halting_bias) == -3.0


@pytest.mark.slow
def test_source_position_is_used_for_the_source():
    """A source of another size needs its own position; the same layer for both changes nothing."""
    model = made(position=None)
    parts = {"embedding": model.embedding, "encoder": model.encoder, "decoder": model.decoder}
    both = EncoderDecoder(**parts, position="sinusoidal")
    same = EncoderDecoder(**parts, position="sinusoidal", source_position="sinusoidal")
    np.testing.assert_array_equal(both(IDS), same(IDS))
    one = EncoderDecoder(**parts, position=None, source_position="sinusoidal")
    one = EncoderDecoder.from_config(one.get_config())
    one.set_weights(model.get_weights())
    assert one.position is None and np.abs(np.asarray(one(IDS)) - both(IDS)).max() > 1e-3
    constants, cache = one.start(IDS, max_length=4)
    logits, _ = one.step(TARGET, constants, cache, ops.arange(4))
    np.testing.assert_allclose(np.asarray(logits)[:2], np.asarray(one(IDS))[:2], atol=1e-4)
