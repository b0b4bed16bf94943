"""The recipe from the command line, rollouts against training, and the loss."""

import sys

import keras
import numpy as np
import oracles
import pytest
import recipe_runs
from other_backend import run_on
from recipe_runs import card as read_card

from keras_attn import models
from keras_attn.compat.keras_layers import flatten_layers
from keras_attn.losses import LabelSmoothedCrossentropy
from keras_attn.residuals import Gate
from recipes.control.agents import build
from recipes.control.environments import Environments
from recipes.control.episodes import Episodes, Windows
from recipes.control.proximal_policy import ProximalPolicy
from recipes.control.rollouts import Rollouts
from recipes.control.training import new_run, run_agent
from recipes.control.trajectory_actor import TrajectoryActor
from recipes.settings import save_settings

SMALL = [
    *("--num-layers", "2", "--num-heads", "2", "--hidden-dim", "8", "--intermediate-dim", "7"),
    *("--num-envs", "3", "--rollout", "17", "--memory", "61", "--steps", "200", "--epochs", "2"),
    *("--passes", "2", "--episodes", "5", "--seeds", "1"),
]


@pytest.fixture(scope="module")
def options():
    return recipe_runs.parse("control", *SMALL)


def new_rollouts(name, options):
    environments = Environments(options.env, options.num_envs, seed=0)
    agent = build(name, environments.state_size, environments.num_actions, options)
    oracles.scramble(agent.model)
    return Rollouts(environments, agent, options), agent


@pytest.mark.parametrize(
    "name",
    [
        "gtrxl",
        "lstm",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("transformer_xl", "memoryless")),
    ],
)
def test_training_reproduces_the_outputs_of_the_rollout(name, options):
    """Log-probabilities of a whole rollout equal those of its single steps.

    Episodes of 51 steps end within rollouts of 17 and between them.
    """
    rollouts, agent = new_rollouts(name, options)
    for _ in range(5):
        inputs, targets = rollouts.collect()
        outputs = agent.model(inputs, training=False)
        log_probs = np.asarray(keras.ops.log_softmax(outputs["policy"]))
        chosen = np.take_along_axis(log_probs, targets["actions"][..., None], axis=-1)[..., 0]
        np.testing.assert_allclose(chosen, targets["log_probs"], atol=2e-5)
        assert not targets["log_probs"].std() == 0
    assert len(rollouts.environments.returns) == 3  # one episode of each row has ended


@pytest.mark.parametrize(
    "name, kind, bias",
    [("gtrxl", "gru", 2), ("gtrxl_sigmoid_tanh", "sigmoid_tanh", 1), ("trxl_i", "sum", None)],
)
def test_a_gate_has_the_initial_bias_of_the_paper(name, kind, bias, options):
    """Section 4.3.4: 2 for GRU, 1 for the others; TrXL-I adds without a gate."""
    model = build(name, 4, 3, options).model
    gates = [layer for layer in flatten_layers(model) if isinstance(layer, Gate)]
    assert len(gates) == 2 * 2 and {gate.kind for gate in gates} == {kind}
    biases = [w for w in model.weights if w.path.endswith("gate_bias")]
    assert len(biases) == (0 if bias is None else 4)
    assert all((keras.ops.convert_to_numpy(b) == bias).all() for b in biases)


@pytest.mark.parametrize("name", ["gtrxl", "transformer_xl", "lstm"])
def test_an_episode_starts_without_a_memory(name, options):
    """Earlier states have no influence after `starts`."""
    _, agent = new_rollouts(name, options)
    states, starts = oracles.random(1, 5, 4), np.zeros((1, 5), bool)
    starts[0, 2] = True
    inputs = {"starts": starts, **{k: np.asarray(v) for k, v in agent.initial(1).items()}}
    one = agent.model({"states": states, **inputs})["policy"]
    other = states.copy()
    other[:, :2] += 1
    two = agent.model({"states": other, **inputs})["policy"]
    assert np.abs(one[:, 1] - two[:, 1]).max() > 1e-3
    np.testing.assert_allclose(one[:, 2:], two[:, 2:], atol=1e-6)


def test_advantages_by_their_definition(options):
    """A_t = sum over l of (discount trace)^l d_(t+l), up to the end of the episode."""
    rollouts, _ = new_rollouts("memoryless", options)
    rng = np.random.default_rng(0)
    rewards, values, last = rng.normal(size=(2, 7)), rng.normal(size=(2, 7)), rng.normal(size=2)
    ends = np.zeros((2, 7), bool)
    ends[0, 3] = ends[1, 6] = True
    found = rollouts._advantages(rewards, ends, values, last)
    for row in range(2):
        following = [*values[row, 1:], last[row]]
        for t in range(7):
            total, share = 0.0, 1.0
            for k in range(t, 7):
                ahead = 0.0 if ends[row, k] else options.discount * following[k]
                total += share * (rewards[row, k] + ahead - values[row, k])
                if ends[row, k]:
                    break
                share *= options.discount * options.trace
            assert found[row, t] == pytest.approx(total, abs=1e-5)


@pytest.fixture(scope="module")
def stored(options):
    """Rollouts of a random policy, and the episodes of 51 steps that they store."""
    rollouts, _ = new_rollouts("random", options)
    return rollouts, Episodes.play(rollouts, 3 * 140)


def test_stored_episodes_are_whole(stored, tmp_path):
    rollouts, episodes = stored
    assert len(episodes.actions) == 2 * 3 * 51 and set(episodes.actions) == {0, 1, 2, 3}
    found = sorted(rollouts.environments.returns)
    np.testing.assert_allclose(sorted(episodes.totals), found, atol=1e-6)
    for place in range(len(episodes.actions)):
        first = place - place % 51
        assert episodes.firsts[place] == first and episodes.starts[place] == (place == first)
        expected = episodes.rewards[place : first + 51].sum()
        assert episodes.returns[place] == pytest.approx(expected, abs=1e-6)
    assert episodes.scale == pytest.approx(np.abs(episodes.returns).max())
    train, valid = episodes.divide(0.1)
    assert len(train.totals) == 5 and len(valid.totals) == 1
    np.testing.assert_array_equal([*train.returns, *valid.returns], episodes.returns)
    episodes.save(tmp_path / "episodes.npz")
    again = Episodes.load(tmp_path / "episodes.npz")
    np.testing.assert_array_equal(again.states, episodes.states)
    (tmp_path / "episodes.npz").write_bytes(b"PK")
    with pytest.raises(ValueError, match="episodes.npz is damaged; delete it"):
        Episodes.load(tmp_path / "episodes.npz")


def test_a_window_ends_within_its_episode(stored):
    _, episodes = stored
    last = np.array([2, 51, 60, 305])
    inputs, labels = Windows(episodes, 7, 4, 1, 0.5, seed=0).ending_at(last)
    for row, end in enumerate(last):
        for column in range(7):
            place = end - 6 + column
            is_real = place >= end - end % 51
            assert inputs["padding_mask"][row, column] == is_real
            assert labels[row, column] == (episodes.actions[place] if is_real else -1)
            if is_real:
                assert inputs["steps"][row, column] == place % 51
                assert inputs["returns"][row, column] == episodes.returns[place] / 0.5
                np.testing.assert_array_equal(inputs["states"][row, column], episodes.states[place])
    windows = Windows(episodes, 7, 4, 2, 0.5, seed=0)
    first, again, other = (windows.batch(*at)[1] for at in ((1, 0), (1, 0), (0, 1)))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_an_actor_reads_what_training_reads(tmp_path):
    """Its logits are those of the windows of its episode, if that has the return asked for."""
    options = recipe_runs.parse(
        *("control", "--out", tmp_path, *SMALL, "--memory", "7", "--num-layers", "1"),
        *("--behaviour", "random"),
    )
    model = new_run("decision_transformer", options).model
    oracles.scramble(model, scale=0.7)
    environments = Environments(options.env, 1, seed=0)
    actor, found = TrajectoryActor(model, environments, 0.25, 0.5, options), []
    states, rewards = [], []
    while not environments.returns:
        states.append(environments.states[0].copy())
        before = environments._sums[0]
        found.append(actor.step())
        rewards.append((environments.returns or environments._sums)[0] - before)
    found.append(actor.step())  # of the next episode
    actions, logits = (np.concatenate(x) for x in zip(*found, strict=True))
    starts = np.arange(51) == 0
    episodes = Episodes(np.array(states), actions[:51], np.array(rewards, "float32"), starts)
    episodes.returns = episodes.returns + np.float32(0.25) - episodes.totals[0]
    inputs, _ = Windows(episodes, 7, 1, 1, 0.5, seed=0).ending_at(np.arange(51))
    expected = np.asarray(model(inputs))[:, -1]
    np.testing.assert_allclose(logits[:51], expected, atol=1e-4)
    assert expected.std(axis=0).min() > 0.01
    assert np.abs(logits[51] - logits[0]).max() < np.abs(logits[51] - logits[50]).max()


def test_the_loss_follows_the_formula():
    policy = ProximalPolicy(keras.Sequential(), clip=0.2, value_weight=0.5, entropy_weight=0.1)
    logits = np.log(np.array([[[0.7, 0.3], [0.4, 0.6]]]))
    outputs = {"policy": logits, "value": np.array([[[1.0], [2.0]]])}
    targets = {
        "actions": np.array([[0, 1]]),
        "log_probs": np.log(np.array([[0.5, 0.9]])),
        "advantages": np.array([[2.0, -1.0]]),
        "returns": np.array([[0.0, 3.0]]),
    }
    # Ratios 1.4, of which 1.2 counts, and 2/3, of which 0.8 does, for that is less.
    gain = (1.2 * 2.0 - 0.8 * 1.0) / 2
    entropy = -np.mean(
        [0.7 * np.log(0.7) + 0.3 * np.log(0.3), 0.4 * np.log(0.4) + 0.6 * np.log(0.6)]
    )
    expected = -gain + 0.5 * (1 + 1) / 2 / 2 - 0.1 * entropy
    outputs = {name: keras.ops.convert_to_tensor(x, "float32") for name, x in outputs.items()}
    targets = {
        name: keras.ops.convert_to_tensor(x, "int32" if name == "actions" else "float32")
        for name, x in targets.items()
    }
    assert float(policy.compute_loss(y=targets, y_pred=outputs)) == pytest.approx(
        expected, abs=1e-5
    )


PROGRAM = """
import json, sys
import numpy as np
import sys

import keras
import tensorflow as tf

device = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
from recipes.control.options import RecipeOptions
from recipes.control.training import AgentRun

found = {}
for strategy in ("none", "mirrored"):
    for name in ("gtrxl", "memoryless"):
        out = f"{sys.argv[1]}/{strategy}-{name}"
        arguments = [*sys.argv[2:], "--strategy", strategy, "--out", out]
        keras.utils.set_random_seed(0)
        run = AgentRun(name, RecipeOptions.parse(arguments))
        before = np.concatenate([w.ravel() for w in run.model.get_weights()])
        run.train()
        after = np.concatenate([w.ravel() for w in run.model.get_weights()])
        assert np.abs(after - before).max() > 1e-3
        rows = open(f"{out}/history.csv").read().splitlines()
        losses = [float(row.split(",")[rows[0].split(",").index("loss")]) for row in rows[1:]]
        found[f"{strategy}-{name}"] = losses, after.tolist()
print(json.dumps(found))
"""


@pytest.mark.slow
def test_two_devices_train_as_one(tmp_path):
    """Two agents, one after the other in one process."""
    found = run_on("tensorflow", PROGRAM, tmp_path, *SMALL, "--num-envs", "4")
    for name in ("gtrxl", "memoryless"):
        losses, after = found[f"none-{name}"]
        others, weights = found[f"mirrored-{name}"]
        np.testing.assert_allclose(others, losses, rtol=1e-3)
        np.testing.assert_allclose(weights, after, atol=2e-4)


@pytest.mark.slow
def test_a_run_writes_cards_table_and_export(tmp_path, capsys):
    def run(*more):
        models = ("--models", "gtrxl", "memoryless")
        return recipe_runs.run("control", "--out", tmp_path, *SMALL, *models, *more)

    assert run() == 0
    card = read_card(tmp_path / "gtrxl-0")
    assert card["steps"] == 2 * 2 * 3 * 17 and len(card["history"]) == 2
    assert -1 <= card["results"]["test"]["value"] <= 1
    assert (tmp_path / "gtrxl-0" / "export" / "1").is_dir()
    assert (tmp_path / "returns.png").read_bytes().startswith(b"\x89PNG")
    assert "| `memoryless` |" in (tmp_path / "table.md").read_text()
    seconds = card["seconds"]
    assert run() == 0  # nothing is trained again
    assert read_card(tmp_path / "gtrxl-0")["seconds"] == seconds
    assert run("--discount", "0.5") == 2
    assert "started with other options" in capsys.readouterr().err
    # With more episodes it is tested again, not trained.
    lines = (tmp_path / "memoryless-0" / "history.csv").read_text()
    arguments = (*SMALL, "--out", tmp_path / "memoryless-0", "--episodes", "7")
    options = recipe_runs.parse("control", *arguments)
    assert run_agent("memoryless", options)["results"]["test"]["episodes"] == 7
    assert (tmp_path / "memoryless-0" / "history.csv").read_text() == lines
    (tmp_path / "gtrxl-0" / "card.json").write_text("{}")
    assert run() == 2
    assert "gtrxl-0/card.json is damaged" in capsys.readouterr().err


@pytest.mark.slow
def test_a_decision_transformer_learns_from_stored_episodes(tmp_path, capsys):
    """It is trained after the actor that plays, and tested again for another return."""

    def run(*more):
        models = ("--models", "decision_transformer", "memoryless")
        return recipe_runs.run("control", "--out", tmp_path, *SMALL, *models, *more)

    assert run("--behaviour", "memoryless", "--target-return", "0.5") == 0
    out = tmp_path / "decision_transformer-0"
    found = read_card(out)["results"]["test"]
    assert found["target"] == 0.5 and found["stored"]["number"] >= 2
    assert -1 <= found["stored"]["mean"] <= found["stored"]["max"] < 0.5
    assert "| `decision_transformer` |" in (tmp_path / "table.md").read_text()
    history = (out / "history.csv").read_bytes()
    assert run("--behaviour", "memoryless", "--target-return", "-0.5") == 0
    assert (out / "history.csv").read_bytes() == history
    assert read_card(out)["results"]["test"]["target"] == -0.5
    assert run("--behaviour", "random") == 2
    assert "started with other options" in capsys.readouterr().err


@pytest.mark.slow
def test_the_return_that_is_asked_for_decides_the_action():
    """In half of the episodes the action names the state, which is rewarded; in half the next."""
    random, choices, length = np.random.default_rng(0), 3, 7
    named = random.integers(choices, size=40 * length)
    is_good = np.repeat(np.arange(40) % 2 == 0, length)
    states, starts = np.eye(choices, dtype="float32")[named], np.arange(40 * length) % length == 0
    actions, rewards = np.where(is_good, named, (named + 1) % choices), np.where(is_good, 1.0, -1.0)
    episodes = Episodes(states, actions, rewards.astype("float32") / length, starts)
    sizes = {"num_layers": 1, "num_heads": 1, "hidden_dim": 16, "intermediate_dim": 32}
    model = models.decision_transformer(choices, choices, discrete=True, **sizes, max_steps=9)
    model.compile(keras.optimizers.Adam(0.01), LabelSmoothedCrossentropy(0.0, ignore_class=-1))
    windows = Windows(episodes, 5, 32, 400, episodes.scale, seed=0)
    for index in range(len(windows)):
        model.train_on_batch(*windows.batch(0, index))
    # At the first step of an episode, before which no action tells good from bad.
    inputs, _ = windows.ending_at(np.flatnonzero(starts))
    last = inputs["states"][:, -1].argmax(-1)
    for sign, expected in ((1, last), (-1, (last + 1) % choices)):
        inputs["returns"] = sign * np.abs(inputs["returns"])
        logits = np.asarray(model(inputs))[:, -1]
        # A model that does not read the return is right in at most half of both.
        assert (logits.argmax(-1) == expected).mean() > 0.6


def test_a_behaviour_must_be_trained_before(tmp_path, capsys):
    options = ("--models", "decision_transformer", "--behaviour", "gtrxl", *SMALL)
    assert "must have been trained under the same --out" in recipe_runs.error_of(
        capsys, "control", "--out", tmp_path, *options
    )


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_missing_package_is_reported_before_anything_is_printed(
    more, tmp_path, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    assert recipe_runs.run("control", "--out", tmp_path / "out", *more) == 2
    said, error = capsys.readouterr()
    assert said == "" and "pip install 'keras_attn[rl]'" in error
    assert not (tmp_path / "out").exists()


def test_the_directory_of_another_recipe_is_refused(tmp_path, capsys):
    save_settings(tmp_path / "settings.json", {"recipe": "image"})
    assert recipe_runs.run("control", "--out", tmp_path) == 2
    assert "one of the recipe image, not of control" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name, message",
    [("popgym-NoSuch-v0", "There is no environment"), ("Pendulum-v1", "discrete actions")],
)
def test_unfit_environments_are_refused(name, message):
    with pytest.raises(ValueError, match=message):
        Environments(name, 1, seed=0)
