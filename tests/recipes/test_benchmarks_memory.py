"""The benchmark of memory: its contender trains, and its table compares."""

import math

import keras
import pytest

from recipes.benchmarks import memory
from recipes.benchmarks.contenders.memory import training_step


@pytest.mark.slow
def test_a_contender_trains_and_its_memory_is_predicted():
    sizes = {**memory.CASES["transformer_xl, memory 512"], "length": 16, "batch": 2}
    task = training_step(**sizes)
    first, second = task.call(), task.call()
    assert second < first and math.isfinite(second)
    assert task.facts["base_mb"] > 0 and task.facts["tensors_mb"] > 0
    assert 0 < memory.predicted(**sizes) < memory.predicted(**{**sizes, "batch": 64})
    keras.config.set_dtype_policy("float32")


def test_the_table_divides_prediction_by_measurement():
    first, far, _, sentence = memory.table(
        [("dense", 800.0, 900.0, 601.0), ("transformer", 100.0, 300.0, 126.0)]
    )[2:]
    assert first == "| dense | 1,024 x 4 | 800 | 601 | 0.75 | 900 |"
    assert far == "| transformer | 512 x 8 | 100 | 126 | 1.26 | 300 |"
    assert sentence == "1 of 2 predictions are within 25% of the measurement."
