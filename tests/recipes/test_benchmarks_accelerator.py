"""The benchmark of accelerators: the device on its card, and its contenders."""

import math

import pytest

from recipes.benchmarks import accelerator, operations
from recipes.benchmarks.card import Card


def row(name, platform, seconds):
    facts = {"platform": platform, "device": "H100" if platform == "gpu" else "cpu", "gflop": 3.0}
    timing = {"units_per_second": 1.0, "cpu_seconds": 1.0, "build_seconds": 1.0, "peak_mb": 1.0}
    timing |= {"first_call": {"seconds": 1.0}, "probe_gflops": 1.0}
    return {
        **timing,
        "name": name,
        "facts": facts,
        "seconds": [seconds],
        "median_seconds": seconds,
    }


@pytest.mark.parametrize(
    "ours, theirs, expected",
    [
        ("gpu", "gpu", ["On H100.", "is 2.00 times as fast as torch SDPA, compiled", "0.003"]),
        ("cpu", "cpu", ["has not run on a GPU", "is 2.00 times as fast"]),
        ("gpu", "cpu", ["On H100.", "No ratio: the devices differ."]),
        (None, "cpu", ["has not run on a GPU", f"{accelerator.OURS} is not in the table"]),
    ],
)
def test_the_card_names_the_device(ours, theirs, expected, monkeypatch):
    contenders = accelerator.causal(512, 2, "bfloat16")

    def measure(contenders, repetitions):
        ours_and_theirs = zip(contenders, (ours, theirs), (1.0, 2.0), strict=True)
        rows = [row(c.name, platform, s) for c, platform, s in ours_and_theirs if platform]
        return rows, {} if ours else {contenders[0].name: "jax is not installed"}

    monkeypatch.setattr(accelerator, "measure", measure)
    card = Card("example", "An example", "Made up.", "tokens", accelerator.COLUMNS)
    accelerator.add_table(card, "causal", *contenders, repetitions=1)
    for part in expected:
        assert part in card.markdown()


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
