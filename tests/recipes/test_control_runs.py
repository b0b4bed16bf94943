"""Runs of the recipe: training, resumption, the test of agents, and their comparison."""

import dataclasses
import json
import sys
from unittest import mock

import numpy as np
import pytest
import recipe_runs
from control_options import SMALL
from other_backend import run_on
from recipe_runs import card as read_card

from recipes.common.settings import save_settings
from recipes.control import returns, training
from recipes.control.environments import Environments
from recipes.control.rollouts import Rollouts
from recipes.control.training import new_run, run_agent


@pytest.fixture(scope="module")
def options():
    return recipe_runs.parse("control", *SMALL)


PROGRAM = """
import json, sys
import keras
import numpy as np
import tensorflow as tf

device = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
from recipes.control.options import RecipeOptions
from recipes.control.training import AgentRun

runs = {}
for strategy in ("none", "mirrored"):
    out = f"{sys.argv[1]}/{strategy}"
    arguments = [*sys.argv[2:], "--strategy", strategy, "--out", out]
    keras.utils.set_random_seed(0)
    run = AgentRun("gtrxl", RecipeOptions.parse(arguments))
    before = np.concatenate([w.ravel() for w in run.model.get_weights()])
    run.train()
    after = np.concatenate([w.ravel() for w in run.model.get_weights()])
    assert np.abs(after - before).max() > 1e-3
    rows = open(f"{out}/history.csv").read().splitlines()
    losses = [float(row.split(",")[rows[0].split(",").index("loss")]) for row in rows[1:]]
    runs[strategy] = losses, after.tolist()
print(json.dumps(runs))
"""


@pytest.mark.slow
def test_two_devices_train_as_one(tmp_path):
    results = run_on("tensorflow", PROGRAM, tmp_path, *SMALL, "--num-envs", "4")
    losses, after = results["none"]
    others, weights = results["mirrored"]
    np.testing.assert_allclose(others, losses, rtol=1e-3)
    np.testing.assert_allclose(weights, after, atol=2e-4)


class Countdowns:
    """Environments whose episodes have given lengths, with the length as the return."""

    def __init__(self, lengths):
        self.returns, self._left = [[] for _ in lengths], [iter(own) for own in lengths]
        self._steps = [0] * len(lengths)
        self._lengths = [next(own) for own in self._left]

    def step(self):
        for row, ended in enumerate(self.returns):
            self._steps[row] += 1
            if self._steps[row] == self._lengths[row]:
                ended.append(self._lengths[row])
                self._steps[row], self._lengths[row] = 0, next(self._left[row])


def test_short_episodes_do_not_displace_long_ones_in_the_test():
    """Five episodes of three environments: the first two of two, and the first of the last."""
    environments = Countdowns([[9, 1, 1, 1], [1] * 20, [10, 1, 1, 1]])
    assert returns.first_returns(environments, environments.step, 5) == [9, 1, 1, 1, 10]


@pytest.mark.slow
def test_training_stopped_within_an_epoch_resumes_at_its_rollout_with_new_episodes(
    tmp_path, monkeypatch
):
    """The second of four rollouts is interrupted, so the resumed run makes three."""
    options = recipe_runs.parse("control", *SMALL, "--out", tmp_path, "--checkpoint-steps", "1")
    begun = []

    class Recorded(Rollouts):
        def collect(self):
            begun.append((self.environments.states.copy(), self._generator.bit_generator.state))
            if len(begun) == 2:
                raise KeyboardInterrupt
            return super().collect()

    monkeypatch.setattr(training, "Rollouts", Recorded)
    with pytest.raises(KeyboardInterrupt):
        new_run("memoryless", options).train()
    run = new_run("memoryless", options)
    run.train()
    assert len(begun) == 2 + 3
    (states, drawn), (again, redrawn) = begun[0], begun[2]
    assert not np.array_equal(states, again) and drawn != redrawn
    assert int(run.training_model.optimizer.iterations) == 2 * 2 * options.passes
    rows = (tmp_path / "history.csv").read_text().splitlines()
    assert [row.partition(",")[0] for row in rows] == ["epoch", "0", "1"]


@pytest.mark.parametrize("name, is_tested", [("memoryless", False), ("decision_transformer", True)])
def test_another_target_return_tests_only_agents_that_read_it(
    name, is_tested, tmp_path, monkeypatch
):
    arguments = (*SMALL, "--out", tmp_path)
    card = dict.fromkeys(("task", "results", "history", "steps", "parameters"))
    card["options"] = recipe_runs.parse("control", *arguments).as_dict()
    (tmp_path / "card.json").write_text(json.dumps(card))
    tested = mock.Mock()
    monkeypatch.setattr(training, "new_run", tested)
    run_agent(name, recipe_runs.parse("control", *arguments, "--target-return", "0.5"))
    assert tested.called == is_tested


@pytest.mark.slow
def test_a_run_writes_cards_table_and_export(tmp_path, capsys):
    def run(*more):
        models = ("--models", "decision_transformer", "gtrxl")
        arguments = (*SMALL, *models, "--target-return", "0.5", *more)
        return recipe_runs.run("control", "--out", tmp_path, *arguments)

    assert run() == 0
    check_decision_transformer(tmp_path, run, capsys)
    card = read_card(tmp_path / "gtrxl-0")
    assert card["steps"] == 2 * 2 * 3 * 17 and len(card["history"]) == 2
    assert -1 <= card["results"]["test"]["value"] <= 1
    assert (tmp_path / "gtrxl-0" / "export" / "1").is_dir()
    assert (tmp_path / "returns.png").read_bytes().startswith(b"\x89PNG")
    assert "| `gtrxl` |" in (tmp_path / "table.md").read_text()
    seconds = card["seconds"]
    assert run() == 0  # nothing is trained again
    assert read_card(tmp_path / "gtrxl-0")["seconds"] == seconds
    assert run("--discount", "0.5") == 2
    assert "started with other options" in capsys.readouterr().err
    # With more episodes it is tested again, not trained.
    lines = (tmp_path / "gtrxl-0" / "history.csv").read_text()
    arguments = (*SMALL, "--out", tmp_path / "gtrxl-0", "--episodes", "7")
    options = recipe_runs.parse("control", *arguments)
    assert run_agent("gtrxl", options)["results"]["test"]["episodes"] == 7
    assert (tmp_path / "gtrxl-0" / "history.csv").read_text() == lines
    (tmp_path / "gtrxl-0" / "card.json").write_text("{}")
    assert run() == 2
    assert "gtrxl-0/card.json is damaged" in capsys.readouterr().err


def check_decision_transformer(folder, run, capsys):
    """It is trained after the actor that plays, and tested again for another return."""
    out = folder / "decision_transformer-0"
    result = read_card(out)["results"]["test"]
    assert result["target"] == 0.5 and result["stored"]["number"] >= 2
    assert -1 <= result["stored"]["mean"] <= result["stored"]["max"] < 0.5
    assert "| `decision_transformer` |" in (folder / "table.md").read_text()
    history = (out / "history.csv").read_bytes()
    assert run("--target-return", "-0.5") == 0
    assert (out / "history.csv").read_bytes() == history
    assert read_card(out)["results"]["test"]["target"] == -0.5
    assert run("--behaviour", "random") == 2
    assert "started with other options" in capsys.readouterr().err


def test_a_behaviour_must_be_trained_before(tmp_path, capsys):
    options = ("--models", "decision_transformer", "--behaviour", "gtrxl", *SMALL)
    assert "must have been trained under the same --out" in recipe_runs.error_of(
        capsys, "control", "--out", tmp_path, *options
    )


@pytest.mark.parametrize("name, value", [("env", "CartPole-v1"), ("memory", 3)])
def test_a_behaviour_of_another_environment_or_size_is_refused(name, value, tmp_path, options):
    """Other differences, as of its learning rate, are allowed."""
    trained = {"model": "lstm", **options.identity(), "learning_rate": 7.0}
    (tmp_path / "lstm-0").mkdir()
    (tmp_path / "lstm-0" / "model.keras").touch()
    path = tmp_path / "lstm-0" / "settings.json"
    save_settings(path, trained)
    out = tmp_path / "decision_transformer-0"
    options = dataclasses.replace(options, out=str(out), behaviour="lstm")
    new_run("decision_transformer", options)
    save_settings(path, {**trained, name: value})
    with pytest.raises(ValueError, match=f"lstm-0 was started with other .* {name}={value!r}, now"):
        new_run("decision_transformer", options)


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_missing_package_is_reported_before_anything_is_printed(
    more, tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    assert recipe_runs.run("control", "--out", tmp_path / "out", *more) == 2
    said, error = capsys.readouterr()
    assert said == "" and "pip install 'keras_attn[rl]'" in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "name, message",
    [("popgym-NoSuch-v0", "There is no environment"), ("Pendulum-v1", "discrete actions")],
)
def test_unfit_environments_are_refused(name, message):
    with pytest.raises(ValueError, match=message):
        Environments(name, 1, seed=0)


def test_a_missing_package_of_an_environment_is_named(monkeypatch):
    gymnasium = pytest.importorskip("gymnasium")
    error = gymnasium.error.DependencyNotInstalled("box2D is not installed")
    monkeypatch.setattr(gymnasium, "make", mock.Mock(side_effect=error))
    with pytest.raises(ImportError, match="needs another package: box2D is not installed"):
        Environments("LunarLander-v3", 1, seed=0)
