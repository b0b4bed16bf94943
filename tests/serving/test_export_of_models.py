"""Models with a memory and models of images on the server: one request each, answered as in Python."""

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
    for model in (agent, image, small):
        oracles.scramble(model, scale=0.5)
    return {
        "agent": (agent, export.SegmentSteps(agent)),
        "image": (image, export.ImageGenerator(image)),
        "larger": (small, export.ImageEnlarger(small)),
    }


@pytest.fixture(scope="module")
def served(exported, start_server, tmp_path_factory):
    path, entries = tmp_path_factory.mktemp("served"), ""
    for name, (model, _) in exported.items():
        export.saved_model(model, path / name)
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
