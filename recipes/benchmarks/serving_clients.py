"""Clients that send requests without a pause and check every answer.

They are not those of `serving.client`, which ask again where an answer is lost, share gRPC's
connections and open one for each REST call: here each has its own, and what is lost is counted.
"""

import collections
import contextlib
import http.client
import json
import random
import threading
import time

from .serving_process import MODEL

SCORE_TOLERANCE = 1e-5


class RestConnection:
    """Translate one sentence a call over a connection to a `Server` that stays open."""

    def __init__(self, server):
        self._connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=120)

    def __call__(self, text):
        """The translation and its score."""
        body = json.dumps({"instances": [text]}).encode()
        self._connection.request("POST", f"/v1/models/{MODEL}:predict", body)
        response = self._connection.getresponse()
        content = response.read()
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {content[:200]}")
        (row,) = json.loads(content)["predictions"]
        return row["translation"], row["score"]

    def close(self):
        self._connection.close()


class GrpcConnection:
    """Translate one sentence a call over a channel of its own to a `Server`."""

    def __init__(self, server):
        import grpc
        from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

        self._request_type = predict_pb2.PredictRequest
        self._channel = grpc.insecure_channel(
            f"127.0.0.1:{server.grpc_port}", options=[("grpc.use_local_subchannel_pool", 1)]
        )
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)

    def __call__(self, text):
        """The translation and its score."""
        request = self._request_type()
        request.model_spec.name = MODEL
        tensor = request.inputs["text"]
        tensor.dtype = 7  # DT_STRING
        tensor.tensor_shape.dim.add(size=1)
        tensor.string_val.append(text.encode())
        outputs = self._stub.Predict(request, timeout=120).outputs
        return outputs["translation"].string_val[0].decode(), outputs["score"].float_val[0]

    def close(self):
        self._channel.close()


class Load:
    """Clients on threads, every other one over gRPC, that send requests until the time is over.

    `expected` is a dict from sentence to its translation and score.
    """

    def __init__(self, server, expected, clients):
        self.seconds = []  # of every right answer
        self.errors, self.wrong = collections.Counter(), []
        self._lock = threading.Lock()  # of the counts
        self._server, self._clients = server, clients
        self._expected, self._sentences = expected, list(expected)

    def run(self, seconds):
        """Send requests for so many seconds, wait for the last answers, and return the duration."""
        start = time.perf_counter()
        threads = [
            threading.Thread(target=self._ask, args=(index, start + seconds))
            for index in range(self._clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - start

    def _ask(self, index, end):
        choice = random.Random(index).choice
        make = GrpcConnection if index % 2 else RestConnection
        client = make(self._server)
        while (start := time.perf_counter()) < end:
            text = choice(self._sentences)
            try:
                answer = client(text)
            except Exception as error:  # Each is counted: none is expected.
                with self._lock:
                    self.errors[f"{type(error).__name__}: {error}"[:200]] += 1
                with contextlib.suppress(Exception):
                    client.close()
                client = make(self._server)
                continue
            if same(answer, self._expected[text]):
                self.seconds.append(time.perf_counter() - start)
            else:
                self.wrong.append((text, answer, self._expected[text]))
        client.close()


def same(answer, expected):
    """Return True if text and score equal those of the model in process."""
    difference = abs(answer[1] - expected[1])
    return answer[0] == expected[0] and difference <= SCORE_TOLERANCE * max(1, abs(expected[1]))
