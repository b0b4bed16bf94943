"""A model with a memory on the server, answered as in Python; an export with changed answers."""

import numpy as np
import oracles
import pytest
import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from keras_attn import export, models
from keras_attn.export.golden_outputs import WARMUP_FILE
from serving import client
from serving.errors import ServingError
from serving.servable import Servable, warm_up

SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 11}


def test_a_client_session_keeps_the_memory(start_server, tmp_path, waiting):
    """Four steps over REST and over gRPC, as in Python. One that fails changes nothing."""
    model = models.gtrxl(5, {"policy": 4}, **SIZES, memory_length=6)
    oracles.scramble(model, scale=0.5)
    export.saved_model(model, tmp_path / "agent")
    pieces = np.split(oracles.random(2, 4, 5).astype("float32"), 4, axis=1)
    flags = ["--model_name=agent", f"--model_base_path={tmp_path / 'agent'}"]
    outputs = [[], []]
    with start_server(*flags) as served:
        waiting(lambda: served.states("agent").get(1) == "AVAILABLE")
        host = f"{served.host}:"
        rest = client.RestClient(f"http://{host}{served.rest_port}/v1/models/agent")
        with rest, client.GrpcClient(f"{host}{served.grpc_port}", "agent") as grpc:
            sessions = rest.session(2), grpc.session(2)
            for piece in pieces:
                before = sessions[0].memory
                with pytest.raises(client.ClientError):
                    sessions[0].step(states=piece, lengths=[1, 1, 1])
                assert sessions[0].memory is before
                for session, policies in zip(sessions, outputs, strict=True):
                    policies.append(session.step(states=piece)["policy"])
    np.testing.assert_array_equal(*(np.array(steps, np.float32) for steps in outputs))
    memories = [np.array(session.memory["memory"], np.float32) for session in sessions]
    np.testing.assert_array_equal(*memories)
    steps, expected = export.SegmentSteps(model), []
    state = steps.initial_memory(2)
    for piece in pieces:
        state = dict(steps.step(piece, [1, 1], **state))
        expected.append(state.pop("policy"))
    np.testing.assert_allclose(outputs[0], expected, atol=1e-4)


def test_an_export_with_changed_answers_is_refused(toys, tmp_path):
    """No hash tells it, but an answer that is not the recorded one."""
    toys.export_small(tmp_path, 2)
    servable = Servable("toy", 2, str(tmp_path / "2"))
    file = tmp_path / WARMUP_FILE
    file.parent.mkdir()

    def warm_up_with(answer):
        log = PredictionLog()
        predicted = log.predict_log
        predicted.request.model_spec.signature_name = "serving_default"
        predicted.request.inputs["text"].CopyFrom(tf.make_tensor_proto(["a"]))
        predicted.response.outputs["translation"].CopyFrom(tf.make_tensor_proto([answer]))
        with tf.io.TFRecordWriter(str(file)) as writer:
            writer.write(log.SerializeToString())
        warm_up(servable, str(tmp_path))

    warm_up_with("2:a")
    with pytest.raises(ServingError, match="differently here: its signature 'serving_default'"):
        warm_up_with("1:a")
    servable.close()
