"""A program that is killed again and again ends like one that is not.

KERAS_ATTN_RESUME_KILLS sets how often; the default suits a test run.
"""

import os
from pathlib import Path

import pytest
from scripts import result_of

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent
KILLS = int(os.environ.get("KERAS_ATTN_RESUME_KILLS", 3))


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return result_of(HERE / "killed.py", tmp_path_factory.mktemp("killed"), KILLS, 3)


def test_every_start_but_the_last_is_killed(result):
    """By SIGKILL; by SIGTERM, saved before or, between two calls of `fit`, at once; and every third
    while a file is half written."""
    codes, halves = zip(*result["ended"], strict=True)
    assert len(codes) == KILLS and set(codes) <= {-9, 143, -15}
    assert all(half for half in halves[1::3]) and halves[1::3]
    assert result["calm"] == result["last"] == 0


def test_the_weights_are_bit_equal(result):
    assert result["weights"] == 3 and result["equal"]


def test_every_epoch_logs_the_same(result):
    calm, disturbed = result["losses"]
    assert len(calm) == 6 and disturbed == calm


def test_two_checkpoints_remain(result):
    assert len(result["left"]) == 2
    assert all(name.endswith(".npz") for name in result["left"])
