"""Two replicas, each with the memory of its own rows, equal one device."""

from pathlib import Path

import pytest
from other_backend import needs_jax, run_on
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


ON_JAX = """
import json
from keras_attn.memory import StatefulSegments
from keras_attn.models import transformer_xl
from keras_attn.distribution import strategy

strategy("mirrored")
model = transformer_xl(11, 1, 2, 6, 7, memory_length=5)
found = [StatefulSegments(model, 4).state["memory"].shape[0]]
try:
    StatefulSegments(model, 3)
except ValueError as error:
    print(json.dumps([*found, str(error)]))
"""


@pytest.mark.slow
@needs_jax
def test_uneven_rows_raise_on_jax():
    devices = "--xla_force_host_platform_device_count=2"
    rows, said = run_on("jax", ON_JAX, XLA_FLAGS=devices)
    assert rows == 4 and "batch_size=3, 2 replicas" in said
