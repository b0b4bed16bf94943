"""The recipe of time series from the command line: whole runs, their exports and pictures."""

import numpy as np
import pytest
import recipe_runs
import tensorflow as tf
from recipe_runs import card, killed_after_an_epoch

from recipes.series.classes import ClassRun
from recipes.series.forecasts import ForecastRun

SMALL = [
    *("--num-layers", "1", "--num-heads", "2", "--hidden-dim", "6", "--intermediate-dim", "7"),
    *("--batch-size", "5", "--steps", "6", "--epochs", "3", "--learning-rate", "0.01"),
]


def run(out, *options):
    return recipe_runs.run("series", "--out", out, *SMALL, *options)


def write_table(folder):
    """Two series of two channels, a day in each six steps, with a gap."""
    path, rng = folder / "power.csv", np.random.default_rng(0)
    lines = ["day,house,warm,cold"]
    for house, start in (("a", 1), ("b", 5)):
        for t in range(start, 61):
            x, y = np.sin(t * np.pi / 3) + rng.normal(0, 0.1, 2)
            fields = [str(t), house, "" if t % 11 == 0 else f"{x:.3f}", f"{100 * y:.3f}"]
            lines += [",".join(fields)] if t not in (20, 21) else []
    path.write_text("\n".join(lines))
    return path


@pytest.mark.slow
def test_a_run_forecasts_beside_baselines_and_its_export_forecasts_the_same(tmp_path, capsys):
    columns = ("--time-column", "day", "--id-column", "house", "--horizon", "3", "--season", "6")
    options = ("--data", write_table(tmp_path), *columns, "--lstm-steps", "2")
    out = tmp_path / "out"
    assert run(out, *options, "--dry-run") == 0
    assert "Steps:  6" in capsys.readouterr().out and not out.exists()
    assert run(out, *options) == 0
    for name in ("card.json", "curve.png", "model.keras", "forecasts.png"):
        assert (out / name).stat().st_size > 0
    facts, said = card(out), capsys.readouterr().out
    result = facts["results"]["test"]
    assert f"mase {result['value']:.4g} (" in said and "80 % band" in said
    names = ["last value", "seasonal naive", "ridge on lags", "lstm"]
    assert list(result["baselines"]) == names
    # The season is a sine, so that repeating it is hard to beat, and the last value is not.
    assert result["baselines"]["seasonal naive"]["mase"] < 1.5
    assert result["baselines"]["last value"]["mase"] > 3
    run_of = ForecastRun(recipe_runs.parse("series", "--out", out, *SMALL, *options))
    assert facts["windows"] == {split: len(part) for split, part in run_of.splits.items()}
    contexts, _, _ = run_of.splits["test"].all()
    run_of.model.load_weights(out / "model.keras")
    expected = run_of._forecast(run_of.model, "test")
    export = tf.saved_model.load(str(out / "export" / "1")).signatures["serving_default"]
    quantiles = export(values=tf.constant(contexts))["quantiles"]
    np.testing.assert_allclose(quantiles, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_killed_run_of_classes_is_resumed_and_its_export_classifies(tmp_path, monkeypatch):
    options = (
        *("--task", "classes", "--channels", "joined", "--scaler", "fixed"),
        *("--mixup", "0.3", "--lstm-steps", "0"),
    )
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    with monkeypatch.context() as patch:
        patch.setattr(ClassRun, "export", lambda self: None)
        assert run(whole, *options) == 0
    with killed_after_an_epoch(monkeypatch):
        assert run(killed, *options) == 130
    assert run(killed, *options) == 0
    facts, resumed = card(whole), card(killed)
    assert facts["results"]["test"]["f1"] == resumed["results"]["test"]["f1"]
    assert [row["loss"] for row in facts["history"]] == pytest.approx(
        [row["loss"] for row in resumed["history"]], rel=1e-4
    )
    run_of = ClassRun(recipe_runs.parse("series", "--out", killed, *SMALL, *options))
    test = run_of.splits["test"]
    export = tf.saved_model.load(str(killed / "export" / "1")).signatures["classify"]
    outputs = export(values=tf.constant(test.values))
    share = np.mean(outputs["class"].numpy() == test.labels)
    assert share == pytest.approx(facts["results"]["test"]["value"])
