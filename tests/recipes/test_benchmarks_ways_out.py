"""The benchmark of the ways out has a row for each value, and tells right from wrong."""

import catalogue_models
import numpy as np
import pytest

from recipes.benchmarks import ways_out


def test_every_pattern_score_depth_and_model_has_a_row():
    rows = {name.split(",")[0] for name in ways_out.cases()}
    kinds = "patterns", "scores", "depth", "models"
    series = {"models.chronos_bolt", "models.chronos_t5", "models.patch_tst"}  # of numbers
    not_a_layer = {"depth.ACTCell", "depth.ACTRNN", "depth.Latents"}  # `perceiver` has the last
    for name in (*catalogue_models.BLOCKS, *catalogue_models.MODELS):
        kind, value = name.split(".")
        if kind in kinds and name not in not_a_layer | series:
            assert f"{kind}: {value}" in rows


def test_a_difference_is_relative_to_the_greatest_output_of_each():
    outputs = [np.array([1.0, -4.0]), np.array([0.5])]
    assert ways_out.difference(outputs, [np.array([1.0, -4.0]), np.array([0.4])]) == (
        pytest.approx(0.25)
    )
    assert ways_out.difference(outputs[:1], outputs) == np.inf
    assert ways_out.difference([np.array([np.nan])], [np.array([0.5])]) == np.inf
    assert ways_out.difference([np.zeros((2, 1))], [np.zeros(2)]) == np.inf


def test_a_cell_says_wrong_and_a_failure_is_named_below_the_table():
    right = {"state": "right", "difference": 2e-7, "bytes": 31_000, "seconds": 0.002}
    wrong = {**right, "state": "wrong", "difference": 0.02}
    refused = {"state": "refused", "reason": "ValueError: no such operation"}
    row = {"SavedModel": right, "LiteRT": {**right, "seconds": 0.003}, "Keras's ONNX": wrong}
    lines = ways_out.table_of({"patterns: Local": {**row, "our ONNX": refused}})
    assert lines[0] == f"1 of {len(ways_out.cases())} parts: 2 right, 1 refused, 1 wrong."
    cells = "2e-07, 31 kB, 1.00 | 2e-07, 31 kB, 1.50 | **wrong**: 2e-02, 31 kB | refused |"
    assert f"| patterns: Local | {cells}" in lines
    assert "- patterns: Local, our ONNX: ValueError: no such operation" in lines


@pytest.mark.slow
def test_a_part_is_right_in_every_way():
    row = ways_out.row_of("depth: ACT")
    assert {way: facts["state"] for way, facts in row.items()} == dict.fromkeys(
        ways_out.WAYS, "right"
    )
