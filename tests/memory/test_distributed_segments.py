"""Two replicas, each with the memory of its own rows, equal one device."""

from pathlib import Path

import pytest
from scripts import result_of

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return result_of(HERE / "distributed.py", tmp_path_factory.mktemp("models"))


@pytest.mark.slow
def test_each_replica_keeps_its_own_rows(result):
    assert result["replicas"] == 2 and result["rows"] == [4, 2]
    assert len(set(result["lengths"])) > 1
    assert result["state"] < 1e-5


@pytest.mark.slow
def test_two_replicas_equal_one_device(result):
    for name in ("weights", "losses"):
        assert result[name] < 1e-5, name


@pytest.mark.slow
def test_all_rows_are_saved_and_restored(result):
    """By two replicas for one device, and by one device for two replicas."""
    assert result["loaded"] == 0 and result["loaded together"] == 0


@pytest.mark.slow
def test_uneven_rows_raise_under_replicas(result):
    assert "batch_size=3, 2 replicas" in result["refused"]
