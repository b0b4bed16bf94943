"""KerasHub's layers and the blocks made of them give the same outputs."""

import keras
import numpy as np
import oracles
import pytest

from keras_attn.convert import from_keras_hub_decoder, from_keras_hub_encoder
from keras_attn.layers import TransformerBlock

keras_hub = pytest.importorskip("keras_hub", reason="keras-hub is not installed")

B, T, S, N, D, C, F = 3, 5, 7, 2, 6, 10, 11
X, CONTEXT = oracles.random(B, T, D, seed=5), oracles.random(B, S, C, seed=5)
REAL = np.arange(T)[None] < np.array([[5], [3], [1]])
CONTEXT_REAL = np.arange(S)[None] < np.array([[2], [7], [4]])


def encoder(**arguments):
    layer = keras_hub.layers.TransformerEncoder(F, N, **arguments)
    layer.build(X.shape)
    oracles.scramble(layer)
    return layer


def decoder(*context, **arguments):
    layer = keras_hub.layers.TransformerDecoder(F, N, **arguments)
    layer.build(X.shape, *(c.shape for c in context))
    oracles.scramble(layer)
    return layer


def test_encoder_outputs_are_equal():
    theirs = encoder(normalize_first=True)
    ours = from_keras_hub_encoder(theirs)
    assert isinstance(ours, TransformerBlock) and ours.count_params() == theirs.count_params()
    np.testing.assert_allclose(ours(X), theirs(X), atol=1e-5)
    np.testing.assert_allclose(ours(X, padding_mask=REAL), theirs(X, padding_mask=REAL), atol=1e-5)
    pairs = np.random.default_rng(0).random((B, T, T)) < 0.5
    pairs[..., 0] = True
    np.testing.assert_allclose(
        ours(X, attention_mask=pairs), theirs(X, attention_mask=pairs), atol=1e-5
    )


@pytest.mark.slow
def test_decoder_outputs_without_context_are_equal():
    theirs = decoder()
    ours = from_keras_hub_decoder(theirs)
    assert ours.cross_attention is None
    np.testing.assert_allclose(ours(X), theirs(X), atol=1e-5)
    np.testing.assert_allclose(
        ours(X, padding_mask=REAL), theirs(X, decoder_padding_mask=REAL), atol=1e-5
    )


@pytest.mark.slow
def test_decoder_outputs_with_context_are_equal():
    theirs = decoder(CONTEXT, activation="gelu", layer_norm_epsilon=0.1)
    ours = from_keras_hub_decoder(theirs)
    assert ours.count_params() == theirs.count_params()
    np.testing.assert_allclose(ours(X, CONTEXT), theirs(X, CONTEXT), atol=1e-5)
    np.testing.assert_allclose(
        ours(X, CONTEXT, padding_mask=REAL, context_padding_mask=CONTEXT_REAL),
        theirs(X, CONTEXT, decoder_padding_mask=REAL, encoder_padding_mask=CONTEXT_REAL),
        atol=1e-5,
    )


@pytest.mark.slow
def test_the_block_takes_over_the_settings_of_the_layer():
    theirs = decoder(
        CONTEXT, dropout=0.25, layer_norm_epsilon=0.5, normalize_first=True, name="reader"
    )
    ours = from_keras_hub_decoder(theirs)
    rates = {ours.dropout, ours.attention.dropout, ours.cross_attention.dropout}
    assert rates == {0.25} and ours.feed_forward.dropout == 0
    assert ours.residual.norm.epsilon == ours.feed_forward_residual.norm.epsilon == 0.5
    assert ours.name == "reader" and ours.needs_closing_norm


@pytest.mark.slow
def test_half_precision_outputs_are_close():
    theirs = encoder(dtype="mixed_float16")
    ours = from_keras_hub_encoder(theirs)
    assert ours.attention.compute_dtype == theirs.compute_dtype
    output, expected = oracles.numpy_of(ours(X)), oracles.numpy_of(theirs(X))
    np.testing.assert_allclose(output, expected, atol=0.05)


def test_a_layer_that_computes_something_else_is_refused():
    theirs = encoder()
    original = theirs.call
    theirs.call = lambda *arguments, **keywords: 1.001 * original(*arguments, **keywords)
    with pytest.raises(ValueError, match="compute different outputs"):
        from_keras_hub_encoder(theirs)


@pytest.mark.parametrize("convert", [from_keras_hub_encoder, from_keras_hub_decoder])
@pytest.mark.parametrize(
    "layer",
    [None, keras.layers.Dense(3), keras_hub.layers.TransformerEncoder(F, N)],
    ids=["None", "Dense", "not built"],
)
def test_other_and_unbuilt_layers_are_refused(layer, convert):
    with pytest.raises(ValueError, match="`layer` must be a built KerasHub.*Received: layer="):
        convert(layer)


def test_an_encoder_is_refused_as_a_decoder():
    with pytest.raises(ValueError, match="TransformerDecoder"):
        from_keras_hub_decoder(encoder())
    with pytest.raises(ValueError, match="TransformerEncoder"):
        from_keras_hub_encoder(decoder(CONTEXT))
