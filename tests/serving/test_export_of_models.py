"""Models of three kinds on the server: one request each, answered as in Python."""

import pathlib
import shutil

import numpy as np
import oracles
import pytest

from keras_attn import export, models, text
from serving import client

SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 11}
V, SHAPE = 11, (2, 3, 1)
TOKENIZER, LABELS = text.Characters("abcdefg"), ["low", "high", "größte"]
# A memory, a seed and images, and strings; tests/export has the other models.
MODELS = {
    "agent": lambda: models.gtrxl(5, {"policy": 4}, **SIZES, memory_length=6),
    "pixels": lambda: models.image_transformer(7, SHAPE, **SIZES, num_mixtures=3),
    "texts": lambda: _classifier(models.bert(V, **SIZES, max_length=5)),
}
MODULES = {
    "agent": export.SegmentSteps,
    "pixels": export.ImageGenerator,
    "texts": lambda model: export.TextClassifier(model, TOKENIZER, LABELS),
}
# More arguments of their exports.
OPTIONS = {"texts": {"tokenizer": TOKENIZER, "labels": LABELS}}


def _classifier(bert):
    parts = {name: getattr(bert, name) for name in ("position", "segment", "norm")}
    return models.Classifier(bert.embedding, bert.encoder, len(LABELS), **parts)


@pytest.fixture(scope="module")
def exported():
    """By name, each model and its export's module."""
    found = {}
    for name, made in MODELS.items():
        model = made()
        oracles.scramble(model, scale=0.5)
        found[name] = model, MODULES[name](model)
    return found


@pytest.fixture(scope="module")
def served(exported, start_server, tmp_path_factory):
    path, entries = tmp_path_factory.mktemp("served"), ""
    for name, (model, _) in exported.items():
        export.saved_model(model, path / name, **OPTIONS.get(name, {}))
        entries += f'config {{ name: "{name}" base_path: "{path / name}" '
        entries += 'model_platform: "tensorflow" }\n'
    config = path / "models.config"
    config.write_text(f"model_config_list {{ {entries} }}")
    with start_server(f"--model_config_file={config}") as server:
        yield server


def asked(served, waiting, model, signature="serving_default", **inputs):
    waiting(lambda: served.states(model).get(1) == "AVAILABLE")
    inputs = {name: np.asarray(value).tolist() for name, value in inputs.items()}
    status, answer = served.predict({"signature_name": signature, "inputs": inputs}, model=model)
    assert status == 200, answer
    return answer["outputs"]


def test_served_images_and_scores_equal_python(served, exported, waiting):
    _, images = exported["pixels"]
    expected = images.generate(4, 3)
    found = asked(served, waiting, "pixels", batch_size=4, seed=3)
    np.testing.assert_array_equal(found["images"], expected["images"])
    bits = asked(served, waiting, "pixels", "score", images=found["images"])
    wanted = images.score(expected["images"])["bits_per_dim"]
    np.testing.assert_allclose(bits, wanted, rtol=1e-4)


def test_a_served_classifier_answers_texts_with_labels(served, exported, waiting):
    texts = ["ab", "gfedc", ""]
    found = asked(served, waiting, "texts", text=texts)
    expected = exported["texts"][1].text(texts)
    assert found["label"] == [label.decode() for label in expected["label"].numpy()]
    assert found["labels"] == [LABELS] * 3
    np.testing.assert_allclose(found["probabilities"], expected["probabilities"], atol=1e-4)


def test_a_client_session_keeps_the_memory(served, exported, waiting):
    """Four steps over REST and over gRPC, as in Python. One that fails changes nothing."""
    waiting(lambda: served.states("agent").get(1) == "AVAILABLE")
    states = oracles.random(2, 4, 5).astype("float32")
    host = f"{served.host}:"
    rest = client.RestClient(f"http://{host}{served.rest_port}/v1/models/agent")
    with rest, client.GrpcClient(f"{host}{served.grpc_port}", "agent") as grpc:
        sessions = rest.session(2), grpc.session(2)
        found = [[], []]
        for piece in np.split(states, 4, axis=1):
            before = sessions[0].memory
            with pytest.raises(client.ClientError):
                sessions[0].step(states=piece, lengths=[1, 1, 1])
            assert sessions[0].memory is before
            for session, outputs in zip(sessions, found, strict=True):
                outputs.append(session.step(states=piece)["policy"])
    np.testing.assert_array_equal(*(np.array(outputs, np.float32) for outputs in found))
    memories = [np.array(session.memory["memory"], np.float32) for session in sessions]
    np.testing.assert_array_equal(*memories)
    steps, expected = exported["agent"][1], []
    state = steps.initial_memory(2)
    for piece in np.split(states, 4, axis=1):
        state = dict(steps.step(piece, [1, 1], **state))
        expected.append(state.pop("policy"))
    np.testing.assert_allclose(found[0], expected, atol=1e-4)


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
