"""A real export on the server: the same answers as in Python, over REST and over gRPC."""

import concurrent.futures
import json
from unittest import mock

import numpy as np
import pytest
from servers import running, wait_for

from keras_attn import export, models, text
from keras_attn.generation import Beam

QUESTIONS = ["the cat ran", "", "   ", "zebra \U0001f600 好", "the dog sat " * 300]
MAX_LENGTH = 7
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def translator():
    tokenizer = text.SentencePiece.train(
        ["the cat sat on the mat", "a dog ran over the hill"] * 3, vocabulary_size=34
    )
    model = models.transformer(tokenizer.vocabulary_size, 1, 2, 8, 11, residual="pre_norm")
    random = np.random.default_rng(3)
    for weight in model.trainable_variables:
        weight.assign(random.normal(0, 0.5, weight.shape))
    return model, export.Translator(model, tokenizer, Beam(2), MAX_LENGTH)


@pytest.fixture(scope="module")
def served(translator, tmp_path_factory):
    """A server that batches."""
    model, python = translator
    path, folder = tmp_path_factory.mktemp("served"), tmp_path_factory.mktemp("log")
    # A third of the time of all signatures.
    few = property(lambda self: {"serving_default": self.text, "ids": self.ids})
    options = {"tokenizer": python.tokenizer, "strategy": Beam(2), "max_length": MAX_LENGTH}
    with mock.patch.object(export.Translator, "signatures", few):
        export.saved_model(model, path, **options)
    config = folder / "batching.config"
    config.write_text(
        "max_batch_size { value: 5 } batch_timeout_micros { value: 500000 } "
        "pad_variable_length_inputs: true"
    )
    flags = ["--model_name=words", f"--model_base_path={path}", "--enable_batching"]
    flags += [f"--batching_parameters_file={config}", "--rest_api_num_threads=8"]
    with running(folder / "server.log", *flags) as server:
        wait_for(lambda: server.states("words").get(1) == "AVAILABLE")
        yield server


@pytest.fixture(scope="module")
def expected(translator):
    return translator[1].translate(QUESTIONS)


def test_grpc_answers_equal_python(served, expected):
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    request = predict_pb2.PredictRequest()
    request.model_spec.name = "words"
    request.inputs["text"].CopyFrom(tf.make_tensor_proto(QUESTIONS))
    with served.channel() as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        answer = stub.Predict(request, timeout=60)
    texts = [t.decode() for t in tf.make_ndarray(answer.outputs["translation"]).tolist()]
    assert texts == expected[0]
    np.testing.assert_allclose(
        tf.make_ndarray(answer.outputs["score"]), expected[1], rtol=1e-5, atol=1e-5
    )


def test_ids_padded_with_their_first_element_are_decoded_right(served, translator, expected):
    tokenizer = translator[1].tokenizer
    ids, lengths = (x.numpy() for x in tokenizer.encode([QUESTIONS[0], "a"]))
    real = np.arange(ids.shape[1]) < lengths[:, None]
    body = {
        "signature_name": "ids",
        "inputs": {
            "source_ids": np.where(real, ids, ids[0, 0]).tolist(),
            "source_lengths": lengths.tolist(),
        },
    }
    status, answer = served.predict(body, model="words")
    assert status == 200, json.dumps(answer)
    decoded = tokenizer.decode(np.array(answer["outputs"]["ids"]))
    assert decoded.numpy()[0].decode() == expected[0][0]


@pytest.mark.point(n=20)
def test_batched_answers_equal_python(served, translator, expected):
    tokenizer = translator[1].tokenizer
    sources = ["a", QUESTIONS[0], "the cat sat on the mat", "dog", "a hill"]
    alone = translator[1].translate(sources)[0]

    def ask(text):
        _, answer = served.predict({"instances": [text]}, model="words")
        return answer["predictions"][0]["translation"], answer["predictions"][0]["score"]

    def ask_by_ids(text):
        ids, lengths = (x.numpy() for x in tokenizer.encode([text]))
        inputs = {"source_ids": ids.tolist(), "source_lengths": lengths.tolist()}
        _, answer = served.predict({"signature_name": "ids", "inputs": inputs}, model="words")
        return tokenizer.decode(np.array(answer["outputs"]["ids"])).numpy()[0].decode()

    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        texts, scores = zip(*pool.map(ask, QUESTIONS))
        assert list(texts) == expected[0]
        np.testing.assert_allclose(scores, expected[1], rtol=1e-5, atol=1e-5)
        assert list(pool.map(ask_by_ids, sources)) == list(alone)
