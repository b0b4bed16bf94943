"""The memories of every replica are restored after a kill."""

from pathlib import Path

import pytest
from scripts import result_of

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return result_of(HERE / "resumed_memory.py", tmp_path_factory.mktemp("memory"))


@pytest.mark.parametrize(("name", "replicas"), [("one", 1), ("two", 2)])
def test_killed_within_an_epoch_equals_straight(result, name, replicas):
    """Bit-equal: weights, dropout's seeds, the optimizer, and the memory of each replica."""
    found = result[name]
    assert found["position"] == [1, 2] and found["replicas"] == replicas
    assert found["moved"] > 0.01
    assert found["difference"] == 0.0


def test_memories_differ_between_replicas(result):
    assert result["two"]["memories"] > 0.1


@pytest.mark.parametrize("name", ["one", "two"])
def test_a_resumed_epoch_logs_metrics_of_the_whole_epoch(result, name):
    expected = result[name]["expected"]
    assert set(expected) == {"loss", "accuracy", "perplexity"}
    assert result[name]["logged"] == expected


def test_another_number_of_replicas_is_refused(result):
    epoch, difference, sentence = result["others"]
    assert (epoch, difference) == (1, 0.0)
    assert "under more or fewer replicas" in sentence
