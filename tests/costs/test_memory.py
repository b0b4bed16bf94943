"""Memory of training steps that `explain` predicts, against TensorFlow's allocator."""

from pathlib import Path

import pytest
from scripts import result_of


@pytest.mark.slow
def test_the_memory_of_a_step_is_predicted():
    """At most a quarter too high, and 0.7 of an order that holds more than the least.

    TensorFlow orders a graph of recomputed blocks anew in each process: 1.12 to 1.37 times the
    prediction was measured.
    """
    steps = result_of(Path(__file__).with_name("step_memory.py"))
    assert len(steps) == 3
    for name, (predicted, measured, kept) in steps.items():
        assert 0.7 * measured < predicted < 1.25 * measured, name
        assert kept < predicted / 20, name  # a graph holds no constants as large as activations
