"""Replicas with very different numbers of real tokens train as one device does."""

from pathlib import Path

import pytest
from scripts import result_of

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return result_of(HERE / "distributed.py", tmp_path_factory.mktemp("resume"))


def test_two_replicas_equal_one_device(result):
    assert result["replicas"] == 2
    assert result["ours"]["moved"] > 0.1
    assert result["ours"]["difference"] < 1e-6


def test_auxiliary_losses_on_two_replicas_equal_one_device(result):
    found = result["auxiliary"]
    assert found["moved"] > 0.1 and found["progress"] == [1.0, 1.0]
    assert found["difference"] < 1e-6
    assert found["two"]["loss"] == pytest.approx(found["one"]["loss"], rel=1e-5)


def test_the_data_distinguishes_a_local_average_from_a_global_one(result):
    """The same with Keras's loss, which divides by each replica's own number."""
    assert result["keras"]["difference"] > 1e-2


def test_two_replicas_log_the_metrics_of_one_device(result):
    for name in ("loss", "perplexity", "token_accuracy"):
        assert result["ours"]["two"][name] == pytest.approx(result["ours"]["one"][name], rel=1e-5)


def test_the_state_of_a_mirrored_model_is_restored(result):
    assert result["epoch"] == 2
    assert result["restored"] == 0.0
