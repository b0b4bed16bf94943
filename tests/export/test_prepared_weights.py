"""Exports of decoders read few variables: joined kernels, and one of all small weights."""

import os

import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn import export, models
from keras_attn.export._saved_model.derived_weights import DerivedWeight, prepared_weights
from keras_attn.generation import generate

IDS, LENGTHS = np.array([[5, 9, 11, 7, 0], [7, 8, 9, 10, 2]], "int32"), np.array([4, 5], "int32")
MAX_LENGTH = 7


def random_model():
    model = models.transformer(9973, 2, 2, 10, 37)
    oracles.scramble(model, 3)
    return model


def ids_of(model, **how):
    return generate(model, IDS, "greedy", MAX_LENGTH, lengths=LENGTHS, **how)


@pytest.fixture(scope="module", params=[None, "int8"])
def exported(request, tmp_path_factory):
    """A model, and its export, plain or quantised."""
    model = random_model()
    folder = tmp_path_factory.mktemp("export")
    how = {"max_length": MAX_LENGTH, "quantize": request.param}
    return model, export.saved_model(model, folder, **how), request.param


def test_ids_are_those_of_generate(exported):
    model, folder, quantize = exported
    signature = tf.saved_model.load(folder).signatures["ids"]
    outputs = signature(source_ids=tf.constant(IDS), source_lengths=tf.constant(LENGTHS))
    ids, scores = ids_of(model)
    np.testing.assert_allclose(outputs["score"], scores, atol=1e-4 if quantize is None else 0.2)
    if quantize is None:
        np.testing.assert_array_equal(outputs["ids"], ids)
        assert len(signature.captured_inputs) < len(model.weights) / 3


def test_files_hold_each_weight_once(exported):
    model, folder, quantize = exported
    files = os.scandir(os.path.join(folder, "variables"))
    size = sum(file.stat().st_size for file in files if ".data" in file.name)
    weights = 4 * sum(int(np.prod(weight.shape)) for weight in model.weights)
    assert size < (1.1 if quantize is None else 0.5) * weights


def test_generate_reads_new_weights_after_an_export(exported):
    model, *_ = exported
    before = ids_of(model)[1].numpy()
    table = model.embedding.table
    old = table.numpy()
    table.assign(0.5 * old)
    after = ids_of(model)[1].numpy()
    fresh = random_model()
    fresh.set_weights(model.get_weights())
    np.testing.assert_array_equal(after, ids_of(fresh)[1])
    assert np.abs(after - before).max() > 1e-3
    table.assign(old)


def test_a_prepared_value_is_that_of_the_weights_when_it_is_made():
    model = random_model()
    embedding = model.embedding
    with prepared_weights() as prepared:

        @tf.function(autograph=False)
        def columns():
            with prepared.scope(model.weights):
                return prepared.read(embedding, "columns", embedding._transposed)

        table = embedding.table.numpy()
        np.testing.assert_array_equal(columns(), table.T)
        assert len(columns.get_concrete_function().captured_inputs) == 2  # and small weights
        assert [type(weight) for weight in prepared.weights] == [DerivedWeight] * 2
