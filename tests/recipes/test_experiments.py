import importlib
import json
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from recipes.algorithmic.options import RecipeOptions
from recipes.control.episodes import Episodes
from recipes.control.training import new_run
from recipes.experiments import (
    deep_residuals,
    extrapolation,
    factors,
    facts,
    lengths,
    memory_lengths,
    pretraining,
    spans,
    stored_returns,
    streams,
)
from recipes.experiments import experiment as module
from recipes.experiments.characters import Characters, bits, bits_by_position
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


def test_a_run_that_diverged_is_no_number_in_its_card_and_is_not_run_again(tmp_path):
    values = {"a": 2, "b": 3}
    numbers = iter([{"score": float("nan")}, {"score": 1.5}])
    experiment = Experiment("toy", "Why?", "How.", values, lambda value: next(numbers))
    for _ in range(2):
        experiment.main(["--out", str(tmp_path), "--seeds", "0"])
        first, second = json.loads((tmp_path / "toy.json").read_text())["runs"]
        assert (first["score"], second["score"]) == (None, 1.5)
        assert "| a | **nan** (nan) |" in experiment.markdown(read_runs(tmp_path / "toy.json"))


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


def test_the_cards_here_are_those_of_their_runs():
    names = sorted(path.stem for path in CARDS.glob("*.json"))
    assert len(names) > 7
    for name in names:
        own = importlib.import_module(f"recipes.experiments.{name}")
        experiment = own.EXPERIMENT
        card = (CARDS / f"{experiment.name}.md").read_text()
        assert experiment.markdown(read_runs(CARDS / f"{experiment.name}.json")) == card


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


@pytest.fixture
def eager():
    """Steps are computed eagerly: of a few of them tracing and compilation take the most time."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    "module", (deep_residuals, factors, facts, lengths, memory_lengths, streams)
)
def test_a_short_run_gives_finite_numbers(module, monkeypatch):
    ids = np.random.default_rng(0).integers(1, 7, 3000)
    for name, small in {
        **{"STEPS": 3, "EPOCHS": 1, "ROWS": 4, "NUM_LAYERS": 2},
        "characters": lambda: Characters(ids, ids, vocabulary_size=7),
    }.items():
        monkeypatch.setattr(module, name, small, raising=False)
    first, *_ = module.EXPERIMENT.values.values()
    assert np.isfinite(list(module.run(first).values())).all()


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_extrapolation_tests_at_twice_the_length(monkeypatch):
    for options in extrapolation.EXPERIMENT.values.values():
        tested = RecipeOptions.parse(options).test_lengths
        assert tested == ((30, 40) if "--train-length" in options else (15, 20))
    first, *_ = extrapolation.EXPERIMENT.values.values()
    small = ["--steps", "1", "--epochs", "1", "--batch-size", "2", "--test-examples", "2"]
    small += ["--train-length", "2", "--num-layers", "1", "--num-heads", "1", "--hidden-dim", "2"]

    def lengths_as_shares(run, examples):
        length = int((examples.sources[0] >= 0).sum())
        return {"sequence_accuracy": length, "token_accuracy": 10 * length}

    monkeypatch.setattr(extrapolation.SequenceRun, "evaluate_examples", lengths_as_shares)
    shares = extrapolation.run([*first, *small])
    assert [*shares] == [*extrapolation.COLUMNS, "symbols at twice"]
    assert [*shares.values()] == [pytest.approx(1.5, abs=0.5), 3, 4, 40]


def test_a_warm_up_grows_evenly_to_the_rate_without_one():
    rate = deep_residuals.warm_up()
    rates = [float(rate(step)) for step in (0, 50, 200, 399)]
    np.testing.assert_allclose(rates, [0, 0.25e-3, 1e-3, 1e-3], rtol=1e-6)


def test_mixed_episodes_are_those_of_both_and_whole():
    def episodes(lengths, value):
        starts = np.concatenate([np.arange(length) == 0 for length in lengths])
        steps = value + np.arange(len(starts))
        return Episodes(steps[:, None] / 10, steps, steps.astype("float32"), starts)

    good, bad = episodes((3, 1, 4), 0), episodes((2, 5), 50)
    mixed = stored_returns.mixed(good, bad, np.random.default_rng(2))
    parts = {
        tuple(part): part
        for own in (good, bad, mixed)
        for part in np.split(own.actions, np.flatnonzero(own.starts)[1:])
    }
    assert len(parts) == 5 and len(mixed.actions) == 15
    np.testing.assert_array_equal(mixed.states[:, 0] * 10, mixed.actions)
    assert sorted(mixed.totals) == sorted([*good.totals, *bad.totals])
    assert [*mixed.totals] != [*good.totals, *bad.totals]


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_a_model_of_stored_episodes_reads_returns_or_none(monkeypatch):
    monkeypatch.setattr(stored_returns, "STEPS", 64)
    learners = []

    def untrained_run(name, options):
        run = new_run(name, options)
        run.train, run.evaluate = lambda: None, lambda: {"test": {"value": 0.25}}
        learners.append(run)
        return run

    monkeypatch.setattr(stored_returns, "new_run", untrained_run)
    for case in stored_returns.EXPERIMENT.values.values():
        keras.utils.set_random_seed(5)
        returns = stored_returns.run(case)
        assert [*returns] == ["data", "better half", "model"] and returns["model"] == 0.25
        assert -1 <= returns["data"] < 0  # of actors that have learned nothing
    # The actor is trained once for all values.
    assert [learner.name for learner in learners] == [
        "transformer_xl",
        *["decision_transformer"] * 3,
    ]
    highest, mean, without = learners[1:]
    assert highest.options.target_return == highest.episodes.totals.max()
    assert mean.options.target_return == pytest.approx(returns["data"])
    rows = [learner.training_data()[0][0][0]["returns"] for learner in learners[1:]]
    assert rows[0].any() and not rows[2].any()
    np.testing.assert_array_equal(rows[0], rows[1])


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_untrained_spans_give_the_keys_of_their_ramp(monkeypatch):
    monkeypatch.setattr(spans, "STEPS", 1)
    result = spans.run(spans.EXPERIMENT.values["dynamic, 1e-5"])
    within_ramp = np.minimum(np.arange(1, 129), spans.RAMP).mean()
    assert within_ramp <= result["keys"] < within_ramp + 4
    assert 0 <= result["span of layer 2"] < 4


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


def test_the_second_part_follows_the_first_or_is_drawn_at_random():
    count, part = pretraining.STEPS * pretraining.BATCH, pretraining.PART_LENGTH
    tokenizer = SimpleNamespace(eos_id=-1)
    ids = np.arange(1000)  # an id is its position
    for share, least, most in ((0.0, 1.0, 1.0), (0.5, 0.49, 0.51)):
        rows, follows = pretraining.sentence_pair_rows(ids, tokenizer, share)
        assert rows.shape == (count, 64) and least <= follows.mean() <= most
        assert (rows[:, [part, -1]] == -1).all() and (np.delete(rows, [part, -1], 1) >= 0).all()
        first, second = rows[:, :part], rows[:, part + 1 : -1]
        assert (np.diff(first) == 1).all() and (np.diff(second) == 1).all()
        is_next = second[:, 0] == first[:, -1] + 1
        assert is_next[follows].all() and is_next[~follows].sum() < count / 100


def test_few_targets_from_the_left_are_those_of_both_sides(monkeypatch):
    trained = {}

    def fit(pattern, tokens, targets):
        trained[pattern] = tokens, targets

    monkeypatch.setattr(pretraining, "BATCH", 1)
    monkeypatch.setattr(pretraining, "_model", lambda tokenizer, pattern: pattern)
    monkeypatch.setattr(pretraining, "_fit", fit)
    tokenizer = SimpleNamespace(vocabulary_size=41, eos_id=3)
    ids = np.random.default_rng(0).integers(4, 41, 1000)
    for pretrain in (pretraining.left_to_right_few_targets, pretraining.masked):
        np.random.seed(5)
        pretrain(ids, tokenizer)
    tokens, targets = trained["causal"]
    _, masked_targets = trained["dense"]
    np.testing.assert_array_equal(targets, masked_targets[:, 1:])
    is_target = targets != 0
    assert 0.13 < is_target.mean() < 0.17
    following = is_target[:, :-1]
    np.testing.assert_array_equal(targets[:, :-1][following], tokens[:, 1:][following])


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("value", pretraining.EXPERIMENT.values)
def test_each_pre_training_changes_the_weights_that_it_trains(value, monkeypatch):
    for name, small in {"STEPS": 3, "BATCH": 2}.items():
        monkeypatch.setattr(pretraining, name, small)
    tokenizer = SimpleNamespace(vocabulary_size=41, eos_id=3)
    ids = np.random.default_rng(0).integers(4, 41, 1000)
    keras.utils.set_random_seed(0)
    before = pretraining.untrained(ids, tokenizer).get_weights()
    keras.utils.set_random_seed(0)
    after = pretraining.EXPERIMENT.values[value](ids, tokenizer).get_weights()
    changes = [np.abs(x - y).max() for x, y in zip(before, after, strict=True)]
    assert (max(changes) == 0) == (value == "none") and np.isfinite(changes).all()
