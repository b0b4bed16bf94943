"""Signatures of masked language models: features and logits."""

import gc
import warnings
import weakref

import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn import export, text
from keras_attn.export.signatures.encoders import TokenEncoder
from keras_attn.models import bert

V, D = 11, 8


@pytest.fixture(scope="module")
def model(encoder_export):
    return encoder_export[0]


@pytest.fixture(scope="module")
def signatures(encoder_export):
    return tf.saved_model.load(encoder_export[1]).signatures


def test_outputs_are_those_of_each_row_alone(model, signatures):
    """A server may pad rows with any value."""
    ids, lengths = np.array([[5, 7, 9, 10, 3], [8, 4, 8, 8, 8]], "int32"), [5, 2]
    inputs = {"token_ids": tf.constant(ids), "lengths": tf.constant(lengths)}
    logits = signatures["logits"](**inputs)["logits"]
    features = signatures["encode"](**inputs)["features"]
    assert logits.shape == (2, 5, V) and features.shape == (2, 5, D)
    for row, length in enumerate(lengths):
        alone = model({"token_ids": ids[row : row + 1, :length]})[0]
        np.testing.assert_allclose(logits[row, :length], alone, atol=1e-5)
        row_logits = model.head(features[row : row + 1, :length])[0]
        np.testing.assert_allclose(row_logits, alone, atol=1e-5)
    default = signatures["serving_default"](**inputs)["logits"]
    np.testing.assert_array_equal(default, logits)


def test_rows_are_filled_with_the_padding_of_the_model():
    model = bert(V, num_layers=1, num_heads=2, hidden_dim=D, intermediate_dim=7, pad_id=3)
    oracles.scramble(model)
    ids, lengths = tf.constant([[5, 7, 9, 10], [8, 4, 1, 1]]), tf.constant([4, 2])
    logits = TokenEncoder(model).logits(ids, lengths)["logits"]
    alone = model({"token_ids": ids[1:, :2]})
    np.testing.assert_allclose(logits[1:, :2], alone, atol=1e-5)


def test_padding_is_left_out_where_each_id_is_a_token():
    """Attention in both directions would see it, by the id 0 in the place of others too."""
    model = bert(V, num_layers=1, num_heads=2, hidden_dim=D, intermediate_dim=7, pad_id=None)
    oracles.scramble(model)
    ids, lengths = tf.constant([[5, 0, 9, 10], [0, 4, 8, 8]]), tf.constant([4, 2])
    encoder = TokenEncoder(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logits = encoder.logits(ids, lengths)["logits"]
        features = encoder.encode(ids, lengths)["features"]
    for row, length in enumerate(lengths):
        alone = model({"token_ids": ids[row : row + 1, :length]})[0]
        np.testing.assert_allclose(logits[row, :length], alone, atol=1e-5)
        np.testing.assert_allclose(model.head(features)[row, :length], alone, atol=1e-5)


@pytest.mark.parametrize("name", ["logits", "encode"])
def test_rows_that_the_model_cannot_read_are_refused(signatures, assert_ids_are_checked, name):
    run = signatures[name]
    assert_ids_are_checked(run, V, {"token_ids": [[5, 7], [8, 4]], "lengths": [2, 2]})
    ids = tf.ones((1, 14), tf.int32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 13 ids.*positions.*14"):
        run(token_ids=ids, lengths=tf.constant([14]))
    run(token_ids=ids[:, 1:], lengths=tf.constant([13]))


def test_a_tokenizer_is_refused(model, tmp_path):
    tokenizer = text.Characters("abc")
    with pytest.raises(ValueError, match="masked language model reads.*without a `tokenizer`"):
        export.saved_model(model, tmp_path, tokenizer=tokenizer)


def test_a_function_keeps_its_object_alive_until_it_goes(model):
    ids, lengths = np.array([[5, 7, 9]], "int32"), [3]
    encoder = TokenEncoder(model)
    expected = encoder.encode(ids, lengths)["features"]
    np.testing.assert_array_equal(TokenEncoder(model).encode(ids, lengths)["features"], expected)
    assert encoder.encode is encoder.encode
    reference = weakref.ref(encoder)
    del encoder
    gc.collect()
    assert reference() is None
