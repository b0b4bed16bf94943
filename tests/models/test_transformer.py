"""The encoder-decoder against the paper's formulas; invariants of padding, batches and steps."""

import math

import keras
import numpy as np
import oracles
import pytest
from keras import ops
from marks import slow

from keras_attn.layers import AdaptiveEmbedding, AdaptiveSoftmax, TokenEmbedding
from keras_attn.models import CausalLanguageModel, EncoderDecoder, transformer

SIZES = {
    "vocabulary_size": 17,
    "num_layers": 1,
    "num_heads": 3,
    "hidden_dim": 6,
    "intermediate_dim": 11,
}
SOURCE = np.array([[5, 7, 16, 9, 3], [8, 4, 3, 0, 0], [12, 3, 0, 0, 0]])
TARGET = np.array([[2, 6, 10, 4], [2, 13, 11, 5], [2, 9, 0, 0]])
IDS = {"source_ids": SOURCE, "target_ids": TARGET}


@pytest.fixture(scope="module", params=["post_norm", "pre_norm"])
def model(request):
    model = transformer(**SIZES, residual=request.param)
    oracles.scramble(model, scale=0.5)
    return model


def test_output_equals_the_formula(model):
    pre_norm = model.encoder.norm is not None
    weights = {
        "table": oracles.numpy_of(model.embedding.table),
        "encoder": [oracles.block_weights(block) for block in model.encoder.blocks],
        "decoder": [oracles.block_weights(block) for block in model.decoder.blocks],
    }
    if pre_norm:
        weights["encoder_norm"] = oracles.norm_weights(model.encoder.norm)
        weights["decoder_norm"] = oracles.norm_weights(model.decoder.norm)
    expected = oracles.encoder_decoder(SOURCE, TARGET, weights, pre_norm=pre_norm)
    logits = model(IDS)
    assert logits.shape == (3, 4, 17)
    np.testing.assert_allclose(logits, expected, atol=1e-4)


@pytest.mark.parametrize("model", ["post_norm"], indirect=True)
def test_every_source_token_has_influence(model):
    before = np.asarray(model(IDS))
    changed = np.where(SOURCE != 0, 14, 0)
    assert np.all(np.any(np.asarray(model({**IDS, "source_ids": changed})) != before, axis=-1))


@pytest.mark.parametrize("slots", [6, slow(None)])
@pytest.mark.parametrize("model", ["post_norm"], indirect=True)
def test_cached_steps_equal_one_pass(model, slots):
    """Sources are ragged; prompts have several tokens; caches have spare slots, or grow."""
    whole = np.asarray(model(IDS))
    constants, cache = model.start(IDS, max_length=slots)
    start = 0
    for length in [2, 1, 1]:
        positions = ops.arange(start, start + length)
        tokens = TARGET[:, start : start + length]
        logits, cache = model.step(tokens, constants, cache, positions)
        real = tokens != 0
        np.testing.assert_allclose(
            np.asarray(logits)[real], whole[:, start : start + length][real], atol=1e-4
        )
        start += length


@pytest.mark.parametrize("model", ["post_norm"], indirect=True)
def test_one_table_serves_source_target_and_output(model):
    tables = [w for w in model.weights if tuple(w.shape) == (17, 6)]
    assert len(tables) == 1


@pytest.mark.slow
def test_a_head_gives_the_logits_of_all_passes():
    """An adaptive softmax gives log-probabilities, and has the embedding of the model."""
    plain = transformer(**SIZES)
    head = AdaptiveSoftmax(AdaptiveEmbedding(17, 6, cutoffs=[3, 11]))
    model = EncoderDecoder(None, "sinusoidal", plain.encoder, plain.decoder, head=head)
    oracles.scramble(model, scale=0.5)
    logits, real = np.asarray(model(IDS)), TARGET != 0
    np.testing.assert_allclose(np.exp(logits).sum(axis=-1), 1, atol=1e-5)
    segments = {"source_segment_ids": SOURCE != 0, "target_segment_ids": real}
    packed = model({**IDS, **{name: ids.astype("int32") for name, ids in segments.items()}})
    np.testing.assert_allclose(np.asarray(packed)[real], logits[real], atol=1e-5)
    constants, cache = model.start(IDS, max_length=4)
    step_logits, _ = model.step(TARGET, constants, cache, ops.arange(4))
    np.testing.assert_allclose(np.asarray(step_logits)[real], logits[real], atol=1e-5)
    again = EncoderDecoder.from_config(model.get_config())
    assert again.head.embedding is again.embedding
    again.set_weights(model.get_weights())
    np.testing.assert_array_equal(again(IDS), logits)


@pytest.mark.slow
def test_dropout_applies_to_the_sum_of_embedding_and_position():
    """A table of c times the identity shows the hidden layer in the logits."""
    dim, rate, c = 6, 0.5, 2.0
    embedding = TokenEmbedding(dim, dim, embeddings_initializer=keras.initializers.Identity(c))
    model = CausalLanguageModel(embedding, keras.layers.Identity(), "sinusoidal", dropout=rate)
    ids = np.full((400, 5), 3)
    hidden = np.asarray(model({"token_ids": ids}, training=True)) / c
    expected = np.array([oracles.sinusoids(p, dim) for p in range(5)])
    expected[:, 3] += c * math.sqrt(dim)
    dropped = hidden == 0
    np.testing.assert_allclose(
        hidden[~dropped], np.broadcast_to(expected / (1 - rate), hidden.shape)[~dropped], atol=1e-4
    )
    visible = np.abs(expected) > 0
    assert abs(dropped[:, visible].mean() - rate) < 0.03


@pytest.mark.slow
def test_dtype_policies():
    reference = transformer(**SIZES)
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = transformer(**SIZES)
    model.set_weights(reference.get_weights())
    expected = np.asarray(reference(IDS))
    logits = model(IDS)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    error = np.abs(np.asarray(logits) - expected)[TARGET != 0].max() / np.abs(expected).max()
    assert 0 < error < 2.0**-5
