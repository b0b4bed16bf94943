"""The memories of every replica are restored after a kill."""

from pathlib import Path

import pytest
from scripts import result_of

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return result_of(HERE / "resumed_memory.py", tmp_path_factory.mktemp("memory"))


def test_killed_within_an_epoch_equals_straight(result):
    """Bit-equal: weights, dropout's seeds, the optimizer, and the memory of each replica."""
    assert result["position"] == [1, 2]
    assert result["moved"] > 0.01
    assert result["difference"] == 0.0
    assert result["memories"] > 0.1, "memories differ between replicas"


def test_a_resumed_epoch_logs_metrics_of_the_whole_epoch(result):
    expected = result["expected"]
    assert set(expected) == {"loss", "accuracy", "perplexity"}
    assert result["logged"] == expected


def test_another_number_of_replicas_is_refused(result):
    epoch, difference, sentence = result["others"]
    assert (epoch, difference) == (1, 0.0)
    assert "under more or fewer replicas" in sentence
