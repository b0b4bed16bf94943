import json

import keras
import numpy as np
import pytest

from recipes.experiments import deep_residuals, factors, facts, lengths, spans, streams
from recipes.experiments import experiment as module
from recipes.experiments.characters import bits, bits_by_position
from recipes.experiments.experiment import CARDS, Experiment, read_runs


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


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Function that runs an experiment of one value on a machine of a name, in a folder."""
    experiment = Experiment("toy", "Why?", "How.", {"a": 2}, lambda value: {"score": 0.5})

    def run(machine, *more):
        monkeypatch.setattr(module, "hardware", lambda: machine)
        monkeypatch.setattr(module, "command_line", lambda: f"python -m toy {' '.join(more)}")
        return experiment.main(["--out", str(tmp_path / "cards"), *more])

    return run


def test_each_run_of_a_card_keeps_its_own_provenance(toy, tmp_path):
    assert toy("old machine", "--seeds", "0") == 0
    path = tmp_path / "cards" / "toy.json"
    (run,) = json.loads(path.read_text())["runs"]
    # As an earlier version wrote it.
    shared = {name: run.pop(name) for name in ("command", "date", "hardware", "versions")}
    path.write_text(json.dumps({**shared, "runs": [run]}))
    assert toy("new machine", "--seeds", "0", "1") == 0
    assert toy("another machine", "--seeds", "0") == 0  # nothing is run
    runs = json.loads(path.read_text())["runs"]
    assert [(x["seed"], x["hardware"]) for x in runs] == [(0, "old machine"), (1, "new machine")]
    lines = (tmp_path / "cards" / "toy.md").read_text().splitlines()
    assert [line for line in lines if line.startswith("- ")] == [
        "- Command: `python -m toy --seeds 0`",
        "- Command: `python -m toy --seeds 0 1`",
        "- Hardware: old machine",
        "- Hardware: new machine",
    ]


@pytest.mark.parametrize("own", [deep_residuals, factors, facts, lengths, spans, streams])
def test_the_cards_here_are_those_of_their_runs(own):
    found = own.EXPERIMENT
    card = (CARDS / f"{found.name}.md").read_text()
    assert found.markdown(read_runs(CARDS / f"{found.name}.json")) == card


@pytest.mark.parametrize("content", ["{", '{"runs": [{"seed": 0}]}'])
def test_a_damaged_card_is_one_sentence(toy, content, tmp_path, capsys):
    (tmp_path / "cards").mkdir()
    (tmp_path / "cards" / "toy.json").write_text(content)
    assert toy("machine") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.endswith("toy.json is damaged; delete it.\n")


def test_a_file_as_folder_and_ctrl_c_are_one_sentence(toy, tmp_path, capsys, monkeypatch):
    (tmp_path / "cards").touch()
    assert toy("machine") == 2
    assert "toy: --out must be a directory" in capsys.readouterr().err
    (tmp_path / "cards").unlink()

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Experiment, "_run", stop)
    assert toy("machine") == 130
    assert capsys.readouterr().err == "Stopped; the same command runs what the card lacks.\n"


@pytest.mark.slow
@pytest.mark.parametrize("module", (deep_residuals, factors, facts, lengths, streams))
def test_a_short_run_gives_finite_numbers(module, monkeypatch):
    for name, small in {"STEPS": 3, "EPOCHS": 1, "ROWS": 16, "NUM_LAYERS": 2}.items():
        monkeypatch.setattr(module, name, small, raising=False)
    first, *_, last = module.EXPERIMENT.values.values()
    assert np.isfinite(list(module.run(first).values())).all()
    last()


@pytest.mark.slow
@pytest.mark.parametrize("value", ["full", "dynamic, 1e-5"])
def test_untrained_spans_give_the_keys_of_their_ramp(value, monkeypatch):
    monkeypatch.setattr(spans, "STEPS", 1)
    found = spans.run(spans.EXPERIMENT.values[value])
    within_ramp = np.minimum(np.arange(1, 129), spans.RAMP).mean()
    if value == "full":
        assert found["keys"] == np.arange(1, 129).mean() and found["span of layer 1"] == 128
    else:
        assert within_ramp <= found["keys"] < within_ramp + 4
        assert 0 <= found["span of layer 2"] < 4


def test_bits_by_position_are_those_of_each_predicted_character():
    random = np.random.default_rng(0)
    rows = random.integers(0, 7, (5, 12))
    chosen = random.uniform(0.1, 0.9, (5, 11))  # the probability of the character that follows

    class GivenProbabilities:
        def predict(self, inputs, **_):
            followers = rows[:, 1:, None] == np.arange(7)
            others = (1 - chosen) / 6
            return 3 + np.log(np.where(followers, chosen[..., None], others[..., None]))

    expected = -np.log2(chosen[:, -3:]).mean(axis=0)
    model = GivenProbabilities()
    np.testing.assert_allclose(bits_by_position(model, rows, count=3), expected, rtol=1e-6)
    assert abs(bits(model, rows, count=3) - expected.mean()) < 1e-6


def test_each_character_counts_in_its_column():
    rows = 100 * np.arange(2)[:, None] + np.arange(factors.WIDTH)  # a mean of 50 above the column
    expected = {"first column": 50, "second": 51, "third": 52, "others": 59, "all": 57.5}
    assert factors.by_column(rows.ravel()) == expected


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
