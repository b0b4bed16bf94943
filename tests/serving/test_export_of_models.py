"""A model with a memory on the server, answered as in Python; an export with changed answers."""

import pathlib
import shutil

import numpy as np
import oracles
import pytest

from keras_attn import export, models
from serving import client

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


def test_an_export_with_changed_answers_is_refused(start_server, tmp_path, waiting):
    """Version 2 has the weights of another model, and no hash that tells it: by its answers it is
    refused, and version 1 goes on.
    """
    written = {}
    for seed, name in enumerate(["first", "second", "other"]):
        model = models.bert(11, **SIZES, max_length=5)
        oracles.scramble(model, seed)
        written[name] = pathlib.Path(export.saved_model(model, tmp_path / name))
    shutil.rmtree(written["second"] / "variables")
    shutil.move(written["other"] / "variables", written["second"])
    (written["second"] / "fingerprint.pb").unlink()
    base = written["first"].parent
    flags = ["--model_name=toy", f"--model_base_path={base}", "--max_num_load_retries=0"]
    with start_server(*flags) as server:
        waiting(lambda: server.states().get(1) == "AVAILABLE")
        written["second"].rename(base / "2")
        waiting(lambda: server.states().get(2) == "END")
        _, body = server.json("GET", "/v1/models/toy/versions/2")
        message = body["model_version_status"][0]["status"]["error_message"]
        assert "damaged or runs differently" in message and "'encode'" in message
        assert server.states()[1] == "AVAILABLE"
