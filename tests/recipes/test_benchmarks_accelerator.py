"""The benchmark of accelerators: the device on its card, and its contenders."""

import math

import pytest

from recipes.benchmarks import accelerator, operations


def test_operations_are_those_of_all_rows_of_a_batch():
    """512 positions have 512 * 513 / 2 pairs; three times four operations each."""
    ours, theirs = accelerator.causal(512, 2, "bfloat16")
    pairs = 2 * 512 * 513 / 2
    expected = 12 * pairs * operations.HEADS * operations.HEAD_DIM / 1e9
    for contender in (ours, theirs):
        assert contender.options["gflop"] == pytest.approx(expected)
    assert (ours.backend, theirs.backend) == ("jax", "torch")


def test_contenders_on_torch_compute(monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is a peer of the benchmarks only")
    from recipes.benchmarks.contenders import accelerator_torch

    monkeypatch.setattr(torch, "compile", lambda function: function)
    sizes = {"length": 5, "batch": 2}
    task = accelerator_torch.sdpa(**sizes, dtype="float32", gflop=1.0)
    task.call()
    assert task.units == 2 * 5 and task.facts["platform"] in ("cpu", "gpu")
    task = accelerator_torch.training(
        "tiny", steps=1, policy="float32", smoothing=0.1, dropout=0.1, **sizes
    )
    assert task.units == 2 * 2 * 5 and 0 < task.facts["parameters"] < math.inf
    task.call()
