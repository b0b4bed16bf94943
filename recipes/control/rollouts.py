"""Rollouts of an agent, as training data."""

import numpy as np

from ..predict import compiled


class Rollouts:
    """Rollouts of T steps in all environments by the current agent.

    A rollout continues where the last one ended; the agent's memory at its beginning is part of the
    data. A training step reads what the actor read in the first `--memory` steps of an episode.
    Later the actor's transformer reads the last `--memory` steps, but a training step also the
    steps since the beginning of the rollout, like a segment of Transformer-XL; then the ratio of
    the probabilities is near 1, not 1, before the first update.

    Advantages are generalised ones, normalised over the rollout:

        A_t = d_t + discount trace A_{t+1},   d_t = r_t + discount V_{t+1} - V_t,

    where an episode's end resets A.

    Args:
        environments: `Environments`.
        agent: `Agent`.
        options: of the recipe; `rollout`, T, `discount`, `trace` and `seed` are used.
        first: int. The rollouts that an earlier part of the run has made; actions are drawn by
            `seed` and this number.

    Reference: Schulman et al., 2016 (https://arxiv.org/abs/1506.02438), eq. 16.
    """

    def __init__(self, environments, agent, options, first=0):
        self.environments, self._agent, self._options = environments, agent, options
        self._count = len(environments.starts)
        self._memory = agent.initial(self._count)
        self._generator = np.random.default_rng([options.seed, first])
        self._run = compiled(agent.model)

    def collect(self):
        """Return one rollout: inputs of the agent's model, and targets of the loss, by name."""
        memory = {name: np.asarray(x) for name, x in self._memory.items()}
        steps_taken = [self.step() for _ in range(self._options.rollout)]
        _, last, _ = self._step_agent(self.environments.states, self.environments.starts)
        steps = {
            name: np.stack([step[name] for step in steps_taken], axis=1) for name in steps_taken[0]
        }
        advantages = self._advantages(steps["rewards"], steps["ends"], steps["values"], last)
        inputs = {"states": steps["states"], "starts": steps["starts"], **memory}
        returns = advantages + steps["values"]
        scale = advantages.std() + 1e-8
        return inputs, {
            "actions": steps["actions"].astype("int32"),
            "log_probs": steps["log_probs"],
            "advantages": (advantages - advantages.mean()) / scale,
            "returns": returns,
        }

    def step(self):
        """Act once in all environments; return arrays (N, ...) of the step, by name."""
        states, starts = self.environments.states.copy(), self.environments.starts
        logits, values, self._memory = self._step_agent(states, starts)
        actions, log_probs = sample_actions(logits, self._generator)
        rewards, ends = self.environments.step(actions)
        seen = {"states": states, "starts": starts, "actions": actions, "log_probs": log_probs}
        return {**seen, "values": values, "rewards": rewards, "ends": ends}

    def _step_agent(self, states, starts):
        """Return logits (N, A), value (N,) and the memory after one step."""
        seen = {"states": states[:, None], "starts": starts[:, None]}
        outputs = dict(self._run({**seen, **self._memory}))
        logits, value = (np.asarray(outputs.pop(name))[:, 0] for name in ("policy", "value"))
        return logits, value[:, 0], outputs

    def _advantages(self, rewards, ends, values, last):
        options, following = self._options, np.concatenate([values[:, 1:], last[:, None]], axis=1)
        continues = 1.0 - ends
        deltas = rewards + options.discount * continues * following - values
        advantages, carried = np.zeros_like(values), np.zeros_like(last)
        for t in reversed(range(values.shape[1])):
            carried = deltas[:, t] + options.discount * options.trace * continues[:, t] * carried
            advantages[:, t] = carried
        return advantages.astype("float32")


def sample_actions(logits, generator):
    """Draw actions (N,) from logits (N, A), and return them with their log-probabilities."""
    logits = logits - logits.max(axis=-1, keepdims=True)
    log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    actions = (log_probs + generator.gumbel(size=logits.shape)).argmax(axis=-1)
    return actions, np.take_along_axis(log_probs, actions[:, None], axis=-1)[:, 0]
