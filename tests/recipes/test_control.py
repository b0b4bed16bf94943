"""Agents, rollouts, stored episodes and the loss."""

import keras
import numpy as np
import oracles
import pytest
import recipe_runs
from control_options import SMALL
from marks import slow

from keras_attn.compat.keras_layers import flatten_layers
from keras_attn.residuals import Gate
from recipes.control.agents import build
from recipes.control.environments import Environments
from recipes.control.episodes import Episodes, Windows
from recipes.control.proximal_policy import ProximalPolicy
from recipes.control.rollouts import Rollouts
from recipes.control.training import new_run
from recipes.control.trajectory_actor import TrajectoryActor


@pytest.fixture(scope="module")
def options():
    return recipe_runs.parse("control", *SMALL)


def new_rollouts(name, options):
    environments = Environments(options.env, options.num_envs, seed=0)
    agent = build(name, environments.state_size, environments.num_actions, options)
    oracles.scramble(agent.model)
    return Rollouts(environments, agent, options), agent


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lstm", "gtrxl"])
def test_training_reproduces_the_outputs_of_the_rollout(name, options):
    """Log-probabilities of a whole rollout equal those of its single steps.

    Episodes of 51 steps, which the memory holds, end within rollouts of 17 and between them.
    """
    rollouts, agent = new_rollouts(name, options)
    for _ in range(5):
        inputs, targets = rollouts.collect()
        outputs = agent.model(inputs, training=False)
        log_probs = np.asarray(keras.ops.log_softmax(outputs["policy"]))
        chosen = np.take_along_axis(log_probs, targets["actions"][..., None], axis=-1)[..., 0]
        np.testing.assert_allclose(chosen, targets["log_probs"], atol=2e-5)
        assert not targets["log_probs"].std() == 0
    assert [len(x) for x in rollouts.environments.returns] == [1, 1, 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, kind, bias",
    [
        ("gtrxl", "gru", 2),
        ("gtrxl_sigmoid_tanh", "sigmoid_tanh", 1),
        ("trxl_i", "sum", None),
    ],
)
def test_a_gate_has_the_initial_bias_of_the_paper(name, kind, bias, options):
    """Section 4.3.4: 2 for GRU, 1 for the others; TrXL-I adds without a gate."""
    model = build(name, 4, 3, options).model
    gates = [layer for layer in flatten_layers(model) if isinstance(layer, Gate)]
    assert len(gates) == 2 * 2 and {gate.kind for gate in gates} == {kind}
    biases = [w for w in model.weights if w.path.endswith("gate_bias")]
    assert len(biases) == (0 if bias is None else 4)
    assert all((keras.ops.convert_to_numpy(b) == bias).all() for b in biases)


@pytest.mark.parametrize("name", ["lstm", slow("gtrxl")])
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
    advantages = rollouts._advantages(rewards, ends, values, last)
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
            assert advantages[row, t] == pytest.approx(total, abs=1e-5)


@pytest.fixture(scope="module")
def stored(options):
    """Rollouts of a random policy, and the episodes of 51 steps that they store."""
    rollouts, _ = new_rollouts("random", options)
    return rollouts, Episodes.play(rollouts, 3 * 140)


def test_stored_episodes_are_whole(stored, tmp_path):
    rollouts, episodes = stored
    assert len(episodes.actions) == 2 * 3 * 51 and set(episodes.actions) == {0, 1, 2, 3}
    returns = sorted(sum(rollouts.environments.returns, []))
    np.testing.assert_allclose(sorted(episodes.totals), returns, atol=1e-6)
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


@pytest.mark.slow
def test_an_actor_reads_what_training_reads(tmp_path):
    """Its logits are those of the windows of its episode, if that has the return asked for."""
    options = recipe_runs.parse(
        *("control", "--out", tmp_path, *SMALL, "--memory", "7", "--num-layers", "1"),
        *("--behaviour", "random"),
    )
    model = new_run("decision_transformer", options).model
    oracles.scramble(model, scale=0.7)
    environments = Environments(options.env, 1, seed=0)
    actor, steps = TrajectoryActor(model, environments, 0.25, 0.5, options), []
    states, rewards = [], []
    (ended,) = environments.returns
    while not ended:
        states.append(environments.states[0].copy())
        before = environments._sums[0]
        steps.append(actor.step())
        rewards.append((ended or environments._sums)[0] - before)
    steps.append(actor.step())  # of the next episode
    actions, logits = (np.concatenate(x) for x in zip(*steps, strict=True))
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
