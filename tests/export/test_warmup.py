"""The requests that an export carries: they run, and the answers are those of a fresh load."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_attn import export, models, text
from keras_attn.memory import StatefulSegments

SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 11}
WORDS = text.Characters.train(["a dog ran"])
V, SHAPE = WORDS.vocabulary_size, (2, 3, 1)
DECODING = {"max_length": 3, "max_source_length": 7}
KINDS = {
    "translator": lambda: (models.transformer(V, **SIZES), {"tokenizer": WORDS, **DECODING}),
    "ids": lambda: (models.transformer(V, **SIZES), DECODING),
    "writer": lambda: (gpt(), {"tokenizer": WORDS, **DECODING}),
    "masked": lambda: (models.bert(V, **SIZES, max_length=5), {}),
    "memory": lambda: (models.transformer_xl(V, **SIZES, memory_length=5), {}),
    "stateful": lambda: (StatefulSegments(models.transformer_xl(V, **SIZES), 2), {}),
    "states": lambda: (models.gtrxl(3, {"policy": 2}, **SIZES, memory_length=5), {}),
    "values": lambda: (models.image_transformer(7, SHAPE, **SIZES), {}),
    "pixels": lambda: (models.image_transformer(7, SHAPE, **SIZES, num_mixtures=2), {}),
    "larger": lambda: (
        models.super_resolution_transformer(7, (1, 3, 1), SHAPE, 1, **SIZES),
        {},
    ),
}


def gpt(**arguments):
    return models.gpt(V, **SIZES, max_length=11, **arguments)


def records(directory):
    """By signature, the arrays of the request and of the response."""
    from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

    file = f"{directory}/assets.extra/tf_serving_warmup_requests"
    found = {}
    for record in tf.data.TFRecordDataset(file).as_numpy_iterator():
        log = PredictionLog.FromString(record).predict_log
        inputs, outputs = (
            {name: tf.make_ndarray(proto) for name, proto in protos.items()}
            for protos in (log.request.inputs, log.response.outputs)
        )
        found[log.request.model_spec.signature_name] = inputs, outputs
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_each_signature_has_a_request_with_the_answer_of_a_fresh_load(kind, tmp_path):
    model, options = KINDS[kind]()
    directory = export.saved_model(model, tmp_path, **options)
    signatures = tf.saved_model.load(directory).signatures
    found = records(directory)
    assert set(found) == set(signatures)
    for name, (inputs, outputs) in found.items():
        answer = signatures[name](**{key: tf.constant(value) for key, value in inputs.items()})
        assert set(answer) == set(outputs)
        for key, value in outputs.items():
            if value.dtype.kind == "f":
                np.testing.assert_allclose(answer[key], value, rtol=1e-5, atol=1e-5)
            else:
                np.testing.assert_array_equal(answer[key], value)


def test_texts_are_of_the_tokenizer(tmp_path):
    """And none of them unknown to it: the answer depends on the weights of its last tokens."""
    found = records(export.saved_model(gpt(), tmp_path, tokenizer=WORDS, **DECODING))
    (asked,) = found["score"][0]["text"]
    ids, lengths = WORDS.encode([asked.decode()])
    assert list(ids[0, : int(lengths[0]) - 1]) == [V - 1, V - 2, V - 3]


def test_answers_that_vary_are_left_out(tmp_path):
    directory = export.saved_model(gpt(), tmp_path, tokenizer=WORDS, strategy="sample", **DECODING)
    answered = {name: bool(outputs) for name, (_, outputs) in records(directory).items()}
    assert answered == {"ids": False, "serving_default": False, "score": True}


def test_sixteen_bits_are_not_compared(tmp_path):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        directory = export.saved_model(gpt(), tmp_path, **DECODING)
    finally:
        keras.config.set_dtype_policy("float32")
    found = records(directory)
    assert set(found) == {"ids", "serving_default", "score"}
    assert not any(outputs for _, outputs in found.values())
