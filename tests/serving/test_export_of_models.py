"""Models of every kind on the server: one request each, answered as in Python."""

import pathlib
import shutil

import numpy as np
import oracles
import pytest

from keras_attn import export, models

SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 11}
SHAPE, STATES = (2, 3, 1), oracles.random(2, 3, 5)


@pytest.fixture(scope="module")
def exported():
    """By name, for each model its export's module."""
    agent = models.gtrxl(5, {"policy": 4}, **SIZES, memory_length=6)
    image = models.image_transformer(7, SHAPE, **SIZES, num_mixtures=3)
    small = models.super_resolution_transformer(7, (1, 2, 1), SHAPE, 1, **SIZES)
    masked = models.bert(11, **SIZES, max_length=5)
    reformer = models.reformer(11, **SIZES, axial_shape=(4, 4))
    for model in (agent, image, small, masked, reformer):
        oracles.scramble(model, scale=0.5)
    return {
        "agent": (agent, export.SegmentSteps(agent)),
        "image": (image, export.ImageGenerator(image)),
        "larger": (small, export.ImageEnlarger(small)),
        "masked": (masked, export.TokenEncoder(masked)),
        "reformer": (reformer, export.IdWriter(reformer, "greedy", 3, 13)),
    }


@pytest.fixture(scope="module")
def served(exported, start_server, tmp_path_factory):
    path, entries = tmp_path_factory.mktemp("served"), ""
    for name, (model, _) in exported.items():
        lengths = {"max_length": 3, "max_source_length": 13}  # as many positions as there are
        export.saved_model(model, path / name, **lengths)
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


def test_an_actor_holds_its_memory(served, exported, waiting):
    _, steps = exported["agent"]
    state = asked(served, waiting, "agent", "initial_memory", batch_size=2)
    for states in np.split(STATES, 3, axis=1):
        found = asked(served, waiting, "agent", "step", states=states, lengths=[1, 1], **state)
        policy = found.pop("policy")
        state = found
    whole = steps.step(STATES, [3, 3], **steps.initial_memory(2))
    np.testing.assert_allclose(np.array(policy)[:, 0], whole["policy"][:, -1], atol=1e-4)
    assert state["memory_length"] == [3, 3]


def test_images_are_drawn_and_scored(served, exported, waiting):
    _, images = exported["image"]
    expected = images.generate(4, 3)
    found = asked(served, waiting, "image", batch_size=4, seed=3)
    np.testing.assert_array_equal(found["images"], expected["images"])
    bits = asked(served, waiting, "image", "score", images=found["images"])
    wanted = images.score(expected["images"])["bits_per_dim"]
    np.testing.assert_allclose(bits, wanted, rtol=1e-4)


def test_images_are_enlarged(served, exported, waiting):
    small = [[[[0], [4]]], [[[2], [2]]]]
    found = asked(served, waiting, "larger", images=small, seed=5)
    expected = exported["larger"][1].generate(small, 5)
    np.testing.assert_array_equal(found["images"], expected["images"])
    np.testing.assert_allclose(found["score"], expected["score"], rtol=1e-4)


def test_masked_tokens_are_told(served, exported, waiting):
    ids, lengths = [[5, 3, 10, 1], [7, 2, 2, 2]], [4, 2]
    inputs = {"token_ids": ids, "lengths": lengths}
    real = np.arange(4) < np.array(lengths)[:, None]
    for signature in ("logits", "encode"):
        found = asked(served, waiting, "masked", signature, **inputs)
        expected = getattr(exported["masked"][1], signature)(ids, lengths)
        (wanted,) = expected.values()
        np.testing.assert_allclose(np.array(found)[real], wanted.numpy()[real], atol=1e-4)


def test_a_reformer_goes_on(served, exported, waiting):
    prompts, lengths = [[5, 3, 10, 1], [7, 2, 2, 2]], [4, 2]
    found = asked(served, waiting, "reformer", token_ids=prompts, lengths=lengths)
    expected = exported["reformer"][1].ids(prompts, lengths)
    np.testing.assert_array_equal(found["ids"], expected["ids"])
    np.testing.assert_allclose(found["score"], expected["score"], rtol=1e-4)


def test_an_export_that_answers_otherwise_than_when_written(start_server, tmp_path, waiting):
    """Version 2 has the weights of another model: it is refused, and version 1 goes on."""
    written = {}
    for seed, name in enumerate(["first", "second", "other"]):
        model = models.bert(11, **SIZES, max_length=5)
        oracles.scramble(model, seed)
        written[name] = pathlib.Path(export.saved_model(model, tmp_path / name))
    shutil.rmtree(written["second"] / "variables")
    shutil.move(written["other"] / "variables", written["second"])
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
