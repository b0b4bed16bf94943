"""The benchmarks of depth, memory and sparse models: contenders run, requirements are counted."""

import math

import pytest

from recipes.benchmarks import requirements, sparse_models
from recipes.benchmarks.contenders import gradient
from recipes.benchmarks.contenders import segment_memory as contenders


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "reversible"])
def test_a_training_step_has_a_gradient(kind):
    task = gradient.stack_step(kind, num_layers=1, batch=2, length=67, width=64)
    assert task.units == 2 * 67 and 0 < task.call() < math.inf


@pytest.mark.slow
def test_a_step_computes_what_the_layers_choose_for_its_length():
    """A causal layer holds no matrix of the scores of so many positions."""
    length, megabytes = 1031, {}
    for how in ("auto", "dense"):
        sizes = {"batch": 1, "length": length, "width": 64, "implementation": how}
        task = gradient.stack_step("plain", num_layers=1, **sizes)
        task.call()
        megabytes[how] = task.facts["tensors_mb"]
    scores = 4 * length**2 / 1e6
    assert 0 < megabytes["auto"] < megabytes["dense"] - scores < megabytes["dense"]


def test_memory_growth_is_of_the_tensors():
    rows = [{"name": n, "facts": {"tensors_mb": mb}} for n, mb in (("2", 50.0), ("24", 60.0))]
    growth = requirements.memory_growth(rows, "24", "2", at_most=1.25)
    assert growth["value"] == pytest.approx(1.2) and growth["met"]
    assert not requirements.memory_growth(rows, "24", "2", at_most=1.19)["met"]
    assert requirements.memory_growth(rows, "24", "48") is None


@pytest.mark.slow
def test_a_memory_scores_all_tokens_and_re_reading_the_last_ones(monkeypatch):
    monkeypatch.setitem(contenders.SIZES, "num_layers", 1)
    assert contenders.with_memory(context=5, segment=7).call().shape[:2] == (1, 7)
    assert contenders.re_reading(context=11, windows=3).call().shape[:2] == (3, 1)


def test_rates_count_tokens():
    """4 tokens in a half of the time of 2 are four times as many a second."""
    rows = [
        {"name": "ours", "seconds": [1.0, 2.0], "median_seconds": 1.5, "units": 4},
        {"name": "theirs", "seconds": [2.0, 4.0], "median_seconds": 3.0, "units": 2},
    ]
    assert requirements.rates(rows, "ours", "theirs", "makes")["value"] == pytest.approx(4)


@pytest.mark.slow
@pytest.mark.parametrize("model", sparse_models.BASELINES)
def test_sparse_models_and_their_baselines_have_a_gradient(model):
    small = [
        f"--num-layers={1 + (model == 'reformer')}",
        "--num-heads=2",
        "--hidden-dim=8",
        "--intermediate-dim=11",
    ]
    for contender in sparse_models.contenders(model, 128):
        task = gradient.language_model_step([*contender.options["options"], *small])
        assert task.units == 128 and 0 < task.call() < math.inf
