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
@pytest.mark.parametrize("module", (deep_residuals, facts, lengths, spans, streams))
def test_a_short_run_gives_finite_numbers(module, monkeypatch):
    for name, small in {"STEPS": 3, "EPOCHS": 1, "ROWS": 16, "NUM_LAYERS": 2}.items():
        monkeypatch.setattr(module, name, small, raising=False)
    first, *others = module.EXPERIMENT.values.values()
    assert np.isfinite(list(module.run(first).values())).all()
    for make in others:
        make()
