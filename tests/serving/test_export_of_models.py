"""Models of every kind on the server: one request each, answered as in Python."""

import pathlib
import shutil

import numpy as np
import oracles
import pytest

from keras_attn import export, models, text
from serving import client

SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 11}
V, SHAPE, STATES = 11, (2, 3, 1), oracles.random(2, 3, 5)
# As many positions as some models have, 16 at most.
LENGTHS = {"max_length": 3, "max_source_length": 13}
WRITERS = {
    "gpt": lambda: models.gpt(V, **SIZES, max_length=16),
    "reformer": lambda: models.reformer(V, **SIZES, axial_shape=(4, 4)),
}
TRANSLATORS = {
    "universal": lambda: models.universal_transformer(
        V, **SIZES, depth="act", transition="separable_conv"
    )
}
SEGMENTS = {"span": lambda: models.adaptive_span_transformer(V, **SIZES, max_span=6)}
IMAGES = {"pixels": lambda: models.image_transformer(7, SHAPE, **SIZES, num_mixtures=3)}
TOKENIZER, LABELS = text.Characters("abcdefg"), ["low", "high", "größte"]
OTHERS = {
    "agent": lambda: models.gtrxl(5, {"policy": 4}, **SIZES, memory_length=6),
    "larger": lambda: models.super_resolution_transformer(7, (1, 2, 1), SHAPE, 1, **SIZES),
    "masked": lambda: models.bert(V, **SIZES, max_length=5),
    "texts": lambda: _classifier(models.bert(V, **SIZES, max_length=5)),
}
MODULES = {
    **dict.fromkeys(WRITERS, lambda m: export.TokenGenerator(m, "greedy", *LENGTHS.values())),
    **dict.fromkeys(TRANSLATORS, lambda model: export.IdTranslator(model, "greedy", 3)),
    **dict.fromkeys([*SEGMENTS, "agent"], export.SegmentSteps),
    **dict.fromkeys(IMAGES, export.ImageGenerator),
    "larger": export.ImageEnlarger,
    "masked": export.TokenEncoder,
    "texts": lambda model: export.TextClassifier(model, TOKENIZER, LABELS),
}
# More arguments of their exports.
GIVEN = {"texts": {"tokenizer": TOKENIZER, "labels": LABELS}}


def _classifier(bert):
    parts = {name: getattr(bert, name) for name in ("position", "segment", "norm")}
    return models.Classifier(bert.embedding, bert.encoder, len(LABELS), **parts)


@pytest.fixture(scope="module")
def exported():
    """By name, each model and its export's module."""
    found = {}
    for name, made in {**WRITERS, **TRANSLATORS, **SEGMENTS, **IMAGES, **OTHERS}.items():
        model = made()
        oracles.scramble(model, scale=0.5)
        found[name] = model, MODULES[name](model)
    return found


@pytest.fixture(scope="module")
def served(exported, start_server, tmp_path_factory):
    path, entries = tmp_path_factory.mktemp("served"), ""
    for name, (model, _) in exported.items():
        export.saved_model(model, path / name, **LENGTHS, **GIVEN.get(name, {}))
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


def test_an_actor_passes_its_memory_through_the_client(served, exported, waiting):
    _, steps = exported["agent"]
    state = asked(served, waiting, "agent", "initial_memory", batch_size=2)
    for states in np.split(STATES, 3, axis=1):
        found = asked(served, waiting, "agent", "step", states=states, lengths=[1, 1], **state)
        policy = found.pop("policy")
        state = found
    whole = steps.step(STATES, [3, 3], **steps.initial_memory(2))
    np.testing.assert_allclose(np.array(policy)[:, 0], whole["policy"][:, -1], atol=1e-4)
    assert state["memory_length"] == [3, 3]


@pytest.mark.parametrize("name", IMAGES)
def test_served_images_and_scores_equal_python(served, exported, waiting, name):
    _, images = exported[name]
    expected = images.generate(4, 3)
    found = asked(served, waiting, name, batch_size=4, seed=3)
    np.testing.assert_array_equal(found["images"], expected["images"])
    bits = asked(served, waiting, name, "score", images=found["images"])
    wanted = images.score(expected["images"])["bits_per_dim"]
    np.testing.assert_allclose(bits, wanted, rtol=1e-4)


def test_served_enlarged_images_equal_python(served, exported, waiting):
    small = [[[[0], [4]]], [[[2], [2]]]]
    found = asked(served, waiting, "larger", images=small, seed=5)
    expected = exported["larger"][1].generate(small, 5)
    np.testing.assert_array_equal(found["images"], expected["images"])
    np.testing.assert_allclose(found["score"], expected["score"], rtol=1e-4)


def test_served_encoder_outputs_equal_python(served, exported, waiting):
    ids, lengths = [[5, 3, 10, 1], [7, 2, 2, 2]], [4, 2]
    inputs = {"token_ids": ids, "lengths": lengths}
    real = np.arange(4) < np.array(lengths)[:, None]
    for signature in ("logits", "encode"):
        found = asked(served, waiting, "masked", signature, **inputs)
        expected = getattr(exported["masked"][1], signature)(ids, lengths)
        (wanted,) = expected.values()
        np.testing.assert_allclose(np.array(found)[real], wanted.numpy()[real], atol=1e-4)


def test_a_served_classifier_answers_texts_with_labels(served, exported, waiting):
    texts = ["ab", "gfedc", ""]
    found = asked(served, waiting, "texts", text=texts)
    expected = exported["texts"][1].text(texts)
    assert found["label"] == [label.decode() for label in expected["label"].numpy()]
    assert found["labels"] == [LABELS] * 3
    np.testing.assert_allclose(found["probabilities"], expected["probabilities"], atol=1e-4)


@pytest.mark.parametrize("name", [*WRITERS, *TRANSLATORS])
def test_served_ids_equal_python(served, exported, waiting, name):
    ids, lengths = [[5, 3, 10, 1], [7, 2, 2, 2]], [4, 2]
    if name in WRITERS:
        inputs = {"token_ids": ids, "lengths": lengths}
    else:
        inputs = {"source_ids": ids, "source_lengths": lengths}
    found = asked(served, waiting, name, **inputs)
    expected = exported[name][1].ids(ids, lengths)
    np.testing.assert_array_equal(found["ids"], expected["ids"])
    np.testing.assert_allclose(found["score"], expected["score"], rtol=1e-4)


@pytest.mark.parametrize("name", SEGMENTS)
def test_segments_with_memory_equal_the_whole_text(served, exported, waiting, name):
    ids = np.array([[5, 3, 10, 1], [7, 2, 4, 8]])
    state = asked(served, waiting, name, "initial_memory", batch_size=2)
    for segment in np.split(ids, 2, axis=1):
        state = asked(served, waiting, name, token_ids=segment, lengths=[2, 2], **state)
        logits = state.pop("logits")
    _, steps = exported[name]
    whole = steps.step(ids, [4, 4], **steps.initial_memory(2))
    np.testing.assert_allclose(logits, whole["logits"][:, 2:], atol=1e-4)


@pytest.mark.parametrize("name", ["span", "agent"])
def test_a_client_session_keeps_the_memory(served, exported, waiting, name):
    """Four steps over REST and over gRPC, as in Python. One that fails changes nothing."""
    waiting(lambda: served.states(name).get(1) == "AVAILABLE")
    segment, output = ("states", "policy") if name == "agent" else ("token_ids", "logits")
    if name == "agent":
        inputs = oracles.random(2, 4, 5).astype("float32")
    else:
        inputs = np.random.default_rng(2).integers(1, V, (2, 4))
    host = f"{served.host}:"
    rest = client.RestClient(f"http://{host}{served.rest_port}/v1/models/{name}")
    with rest, client.GrpcClient(f"{host}{served.grpc_port}", name) as grpc:
        sessions = rest.session(2), grpc.session(2)
        found = [[], []]
        for piece in np.split(inputs, 4, axis=1):
            before = sessions[0].memory
            with pytest.raises(client.ClientError):
                sessions[0].step(**{segment: piece}, lengths=[1, 1, 1])
            assert sessions[0].memory is before
            for session, outputs in zip(sessions, found, strict=True):
                outputs.append(session.step(**{segment: piece})[output])
    np.testing.assert_array_equal(*(np.array(outputs, np.float32) for outputs in found))
    memories = [np.array(session.memory["memory"], np.float32) for session in sessions]
    np.testing.assert_array_equal(*memories)
    steps, expected = exported[name][1], []
    state = steps.initial_memory(2)
    for piece in np.split(inputs, 4, axis=1):
        state = dict(steps.step(piece, [1, 1], **state))
        expected.append(state.pop(output))
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
