"""Models whose weights are divided among eight simulated devices."""

from pathlib import Path

import pytest
from other_backend import lines_on_eight_devices, needs_jax
from shared_results import shared

pytestmark = [pytest.mark.slow, needs_jax]

HERE = Path(__file__).resolve().parent
# Weights of Keras's own layers that stand for a user's.
OF_THE_USER = ("cell/cell/", "norm/gamma", "norm/beta", "layer_normalization")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    def train():
        lines = lines_on_eight_devices(HERE / "divided_models.py")
        return {name: result for line in lines for name, result in line.items()}

    return shared(tmp_path_factory, "divided_models", train)


@pytest.fixture(scope="module")
def fit(tmp_path_factory):
    def train():
        folder = tmp_path_factory.mktemp("saved")
        (results,) = lines_on_eight_devices(HERE / "divided_fit.py", folder)
        return results

    return shared(tmp_path_factory, "divided_fit", train)


def test_models_end_with_the_weights_of_one_device(models):
    trained = {name: result for name, result in models.items() if "moved" in result}
    assert len(trained) == 2 and min(result["moved"] for result in trained.values()) > 0.01
    for name, result in trained.items():
        assert result["difference"] < 1e-6, name


def test_every_weight_of_every_value_has_a_rule(models):
    for name, result in models.items():
        missing = [path for path, why in result["undivided"].items() if "no `weight_axes`" in why]
        missing = [p for p in missing if not any(part in p for part in OF_THE_USER)]
        assert not missing, f"{name}: declare `weight_axes` in the layers of {missing}"


@pytest.mark.parametrize("mesh, most", [("2", 0.30), ("8", 0.15)])
def test_a_model_that_fits_its_mesh_takes_the_memory_of_its_parts(fit, mesh, most):
    saved = fit[mesh]
    assert saved["undivided"] == {}
    assert saved["share"] <= most and saved["loaded_share"] <= most


def test_a_divided_model_trains_predicts_and_generates_as_on_one_device(fit):
    trained = fit["trained"]
    assert trained["difference"] < 1e-5 and trained["outputs"] < 1e-4
    assert trained["rows"] == 11 and trained["same_ids"]


@pytest.mark.parametrize("mesh", ["2", "8"])
def test_a_divided_model_is_saved_as_on_one_device(fit, mesh):
    assert fit[mesh]["loaded"]


def test_a_step_of_a_divided_model_exchanges_sums_only(fit):
    assert fit["collectives"] == ["all-reduce"]


def test_bad_meshes_and_rules_raise_one_sentence(fit):
    devices, size, name, rule = fit["errors"]
    assert "number of devices of all processes, 8. Received: data=2, model=3" in devices
    assert "`data` must be an integer of at least 1" in size
    assert "belong to the name 'model_parallel'. Received: name='none', data=2" in name
    assert "at most as many axes as the weight" in rule and "(8, 4)" in rule


def test_weights_that_stay_whole_are_reported_once(fit):
    (own,), (sizes,), none = fit["warnings"]
    assert "mine/kernel (its layer has no `weight_axes` for it)" in own
    assert "six/kernel (4 does not divide its axis of 6)" in sizes
    assert none == []
