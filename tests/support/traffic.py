"""Clients that keep asking a server of `tests/serving/toy_models.py` and check each answer."""

import collections
import concurrent.futures
import itertools
import threading
import time

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc


class Traffic:
    """Asks without a pause, over REST and gRPC in turn, each time for a text of its own.

    `answers` holds one list per thread: the version that answered, or the name of a refusal.
    Leaving the block fails if an answer was wrong or a refusal is not one of `refusals`.
    """

    def __init__(self, server, refusals=(), threads=4):
        self.server, self.refusals = server, set(refusals)
        self.answers = [[] for _ in range(threads)]
        self._stop = threading.Event()
        self._pool = concurrent.futures.ThreadPoolExecutor(threads)

    def __enter__(self):
        self._running = [self._pool.submit(self._ask, i) for i in range(len(self.answers))]
        return self

    def __exit__(self, *error):
        self._stop.set()
        for future in self._running:
            future.result()

    def wait_for_answers(self, count=3, of=None):
        """Returns when each thread has had so many more answers, or so many of a version."""
        before = [0 if of else len(answers) for answers in self.answers]
        end = time.monotonic() + 60
        while any(
            (answers.count(of) if of else len(answers)) < start + count
            for answers, start in zip(self.answers, before)
        ):
            assert time.monotonic() < end, self.counts()
            assert not any(future.done() for future in self._running), self.failure()
            time.sleep(0.01)

    def counts(self):
        return collections.Counter(itertools.chain(*self.answers))

    def failure(self):
        return [future.exception() for future in self._running if future.done()]

    def _ask(self, index):
        with self.server.channel() as channel:
            predict = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict
            for number in itertools.count():
                if self._stop.is_set():
                    return
                text = f"{index}-{number}"
                try:
                    if number % 2:
                        answer = over_grpc(predict, text)
                    else:
                        answer = over_rest(self.server, text)
                except Refusal as error:
                    answer = str(error)
                    assert answer in self.refusals, answer
                self.answers[index].append(answer)


class Refusal(Exception):
    """Another answer than a translation: the name of a code, or the status and the error."""


def over_rest(server, text):
    """The version that translated a text."""
    status, body = server.predict({"instances": [text]})
    if status != 200:
        raise Refusal(status)
    (row,) = body["predictions"]
    return version_of(row["translation"], row["score"], text)


def over_grpc(predict, text):
    """The version that translated a text; it must be the one that the answer names."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "toy"
    request.inputs["text"].CopyFrom(tf.make_tensor_proto([text]))
    try:
        response = predict(request, timeout=60)
    except grpc.RpcError as error:
        raise Refusal(error.code().name) from error
    (translation,) = response.outputs["translation"].string_val
    (score,) = response.outputs["score"].float_val
    version = version_of(translation.decode(), score, text)
    assert version == response.model_spec.version.value
    return version


def version_of(translation, score, text):
    version, _, rest = translation.partition(":")
    assert rest == text
    np.testing.assert_allclose(score, -len(text) / 10, rtol=1e-6)
    return int(version)
