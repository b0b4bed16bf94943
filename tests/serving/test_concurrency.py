"""Many clients at once: each gets its own answers, without needless waits."""

import concurrent.futures
import socket

import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from serving.rest_server import RestServer


def test_thirty_two_concurrent_clients_get_their_own_answers(server):
    with server.channel() as channel, concurrent.futures.ThreadPoolExecutor(32) as pool:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

        def over_rest(texts):
            status, answer = server.predict({"instances": texts})
            assert status == 200, answer
            return [prediction["translation"] for prediction in answer["predictions"]]

        def over_grpc(texts):
            request = predict_pb2.PredictRequest()
            request.model_spec.name = "toy"
            request.inputs["text"].CopyFrom(tf.make_tensor_proto(texts))
            outputs = stub.Predict(request, timeout=60).outputs
            return [text.decode() for text in outputs["translation"].string_val]

        asked = [[f"{client}-{item}" for item in range(client % 5 + 1)] for client in range(40)]
        running = [
            pool.submit(over_rest if client % 2 else over_grpc, texts)
            for client, texts in enumerate(asked)
        ]
        for texts, future in zip(asked, running):
            assert future.result() == [f"00000007:{text}" for text in texts]


@pytest.mark.slow
def test_a_slow_request_does_not_delay_a_quick_one(server):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        slow = pool.submit(server.predict, {"signature_name": "slow", "instances": [100_000]})
        quick = 0
        while not slow.done():
            assert server.predict({"instances": ["a"]})[0] == 200
            quick += 1
        assert slow.result()[0] == 200
    assert quick > 2


def test_answers_on_an_open_connection_are_not_delayed():
    # Nagle's algorithm against delayed acknowledgements costs 40 ms every time but the first.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        RestServer(None, listener)
        with socket.create_connection(listener.getsockname()):
            accepted, _ = listener.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
