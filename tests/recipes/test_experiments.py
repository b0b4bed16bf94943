import json

import keras
import numpy as np
import pytest

from recipes.experiments import deep_residuals, facts, lengths, spans, streams
from recipes.experiments.experiment import Experiment


def test_an_experiment_runs_only_the_missing_runs_of_its_card(tmp_path):
    seen = []

    def run(value):
        seen.append((value, float(keras.random.uniform(()))))
        return {"score": value * 1.5}

    experiment = Experiment("toy", "Why?", "How.", {"a": 2, "b": 3}, run)
    experiment.main(["--out", str(tmp_path), "--seeds", "0", "--values", "b"])
    experiment.main(["--out", str(tmp_path), "--seeds", "0", "1"])
    assert [value for value, _ in seen] == [3, 2, 2, 3]
    assert len({draw for _, draw in seen}) == 2  # one for each seed
    card = (tmp_path / "toy.md").read_text()
    assert "| a | " in card and "**4.50** (4.50, 4.50)" in card
    assert len(json.loads((tmp_path / "toy.json").read_text())["runs"]) == 4


@pytest.mark.slow
@pytest.mark.parametrize("module", (deep_residuals, facts, lengths, streams))
def test_a_short_run_gives_finite_numbers(module, monkeypatch):
    for name, small in {"STEPS": 3, "EPOCHS": 1, "ROWS": 16, "NUM_LAYERS": 2}.items():
        monkeypatch.setattr(module, name, small, raising=False)
    first, *others = module.EXPERIMENT.values.values()
    assert np.isfinite(list(module.run(first).values())).all()
    for make in others:
        make()


@pytest.mark.slow
@pytest.mark.parametrize("value", ["full", "static, 0", "dynamic, 1e-5"])
def test_untrained_spans_give_the_keys_of_their_ramp(value, monkeypatch):
    monkeypatch.setattr(spans, "STEPS", 1)
    found = spans.run(spans.EXPERIMENT.values[value])
    within_ramp = np.minimum(np.arange(1, 129), spans.RAMP).mean()
    if value == "full":
        assert found["keys"] == np.arange(1, 129).mean() and found["span of layer 1"] == 128
    else:
        longest = 1 if value == "static, 0" else 4
        assert within_ramp <= found["keys"] < within_ramp + longest
        assert 0 <= found["span of layer 2"] < longest


def test_about_half_of_the_symbols_are_copies():
    rows = spans.repeats(0, 200)
    assert rows.min() == 1 and rows.max() == spans.NUM_SYMBOLS
    positions, distances = np.arange(32, 129), np.arange(8, spans.MAX_DISTANCE)
    source = positions[:, None] - distances
    # Three symbols in turn are equal by chance once in 4,096 places.
    same = (rows[:, positions, None] == rows[:, source]) & (source >= 0)
    run = same[:, :-2] & same[:, 1:-1] & same[:, 2:]
    assert 0.4 < run.any(axis=2).mean() < 0.7
    assert (np.unique(rows, return_counts=True)[1] / rows.size).min() > 0.04
