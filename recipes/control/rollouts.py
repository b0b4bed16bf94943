"""What an agent lives through, as data to learn from."""

import keras
import numpy as np


class Rollouts:
    """Stretches of all environments' time, acted by the agent as it is then.

    A stretch of T steps goes on where the last one ended; the agent's memory at its beginning is
    part of the data, so that a training step sees what the actor saw. Advantages are generalised
    ones, normalised over the stretch:

        A_t = d_t + discount trace A_{t+1},   d_t = r_t + discount V_{t+1} - V_t,

    where nothing is carried over the end of an episode.

    Args:
        environments: `Environments`.
        agent: `Agent`.
        options: with `rollout`, T, `discount`, `trace` and `seed`.

    Reference: Schulman et al., 2016 (https://arxiv.org/abs/1506.02438), eq. 16.
    """

    def __init__(self, environments, agent, options):
        self.environments, self._agent, self._options = environments, agent, options
        self._count = len(environments.starts)
        self._memory = agent.initial(self._count)
        self._generator = np.random.default_rng(options.seed)
        self._run = _compiled(agent.model)

    def collect(self):
        """One stretch: inputs of the agent's model, and what the loss needs, by name."""
        steps = {name: [] for name in ("states", "starts", "actions", "log_probs", "values")}
        rewards, ends = [], []
        memory = {name: np.asarray(x) for name, x in self._memory.items()}
        for _ in range(self._options.rollout):
            states, starts = self.environments.states.copy(), self.environments.starts
            logits, value, self._memory = self._look(states, starts)
            actions, log_probs = self._draw(logits)
            found = (states, starts, actions, log_probs, value)
            for name, x in zip(steps, found, strict=True):
                steps[name].append(x)
            reward, ended = self.environments.step(actions)
            rewards.append(reward)
            ends.append(ended)
        _, last, _ = self._look(self.environments.states, self.environments.starts)
        steps = {name: np.stack(x, axis=1) for name, x in steps.items()}
        rewards, ends = np.stack(rewards, axis=1), np.stack(ends, axis=1)
        advantages = self._advantages(rewards, ends, steps["values"], last)
        inputs = {"states": steps["states"], "starts": steps["starts"], **memory}
        returns = advantages + steps["values"]
        scale = advantages.std() + 1e-8
        return inputs, {
            "actions": steps["actions"].astype("int32"),
            "log_probs": steps["log_probs"],
            "advantages": (advantages - advantages.mean()) / scale,
            "returns": returns,
        }

    def _look(self, states, starts):
        """Logits (N, A), value (N,) and the memory after one step."""
        seen = {"states": states[:, None], "starts": starts[:, None]}
        outputs = dict(self._run({**seen, **self._memory}))
        logits, value = (np.asarray(outputs.pop(name))[:, 0] for name in ("policy", "value"))
        return logits, value[:, 0], outputs

    def _draw(self, logits):
        """Actions (N,) by their probabilities, and the logarithms of these."""
        logits = logits - logits.max(axis=-1, keepdims=True)
        log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        actions = (log_probs + self._generator.gumbel(size=logits.shape)).argmax(axis=-1)
        return actions, np.take_along_axis(log_probs, actions[:, None], axis=-1)[:, 0]

    def _advantages(self, rewards, ends, values, last):
        options, following = self._options, np.concatenate([values[:, 1:], last[:, None]], axis=1)
        goes_on = 1.0 - ends
        deltas = rewards + options.discount * goes_on * following - values
        advantages, carried = np.zeros_like(values), np.zeros_like(last)
        for t in reversed(range(values.shape[1])):
            carried = deltas[:, t] + options.discount * options.trace * goes_on[:, t] * carried
            advantages[:, t] = carried
        return advantages.astype("float32")


def _compiled(model):
    """The model's outputs for its inputs, by one compiled function."""
    if keras.backend.backend() != "tensorflow":
        return model.predict_on_batch
    import tensorflow as tf

    # Under a strategy each replica would give all rows.
    function = tf.function(lambda inputs: model(inputs, training=False), autograph=False)
    return lambda inputs: function(tf.nest.map_structure(tf.convert_to_tensor, inputs))
