"""The benchmark of memory: its contender trains, and its table compares."""

import math

import keras
import pytest

from recipes.benchmarks import memory
from recipes.benchmarks.contenders.memory import training_step


@pytest.mark.slow
@pytest.mark.parametrize("name", ["remat, 8 layers", "transformer_xl, memory 512", "transformer"])
def test_a_contender_trains_and_its_memory_is_predicted(name):
    sizes = {**memory.CASES[name], "length": 16, "batch": 2}
    task = training_step(**sizes)
    first, second = task.call(), task.call()
    assert second < first and math.isfinite(second)
    assert task.facts["base_mb"] > 0
    assert 0 < memory.predicted(**sizes) < memory.predicted(**{**sizes, "batch": 64})
    keras.config.set_dtype_policy("float32")


def test_the_table_divides_prediction_by_measurement():
    *_, row = memory.table([("dense", 800.0, 600.0)])
    assert row == "| dense | 1,024 x 4 | 800 | 600 | 0.75 |"
