"""An actor that gives a model of trajectories the return to reach."""

import numpy as np

from ..predict import compiled
from .episodes import MAX_STEPS
from .rollouts import sample_actions


class TrajectoryActor:
    """Act by a `TrajectoryModel`, which reads the last `memory` steps of an episode.

    The return that the model reads is the target less the rewards of the episode so far.

    Args:
        model: a `TrajectoryModel` of discrete actions.
        environments: `Environments`.
        target: float. Return of an episode.
        scale: float. Number by which returns are divided, as in training.
        options: of the recipe; `memory` and `seed` are used.
    """

    def __init__(self, model, environments, target, scale, options):
        self.environments, self._target, self._scale = environments, target, scale
        count, length = len(environments.starts), options.memory
        self._steps = np.zeros(count, "int32")
        self._wanted = np.zeros(count)
        self._inputs = {
            "returns": np.zeros((count, length), "float32"),
            "states": np.zeros((count, length, environments.state_size), "float32"),
            "actions": np.zeros((count, length), "int32"),
            "steps": np.zeros((count, length), "int32"),
            "padding_mask": np.zeros((count, length), bool),
        }
        self._generator = np.random.default_rng(options.seed)
        self._run = compiled(model)

    def step(self):
        """Act once in all environments; return the actions (N,), and their logits (N, A)."""
        begins, inputs = self.environments.starts, self._inputs
        self._steps[begins], self._wanted[begins] = 0, self._target
        inputs["padding_mask"][begins] = False
        self._append("returns", self._wanted / self._scale)
        self._append("states", self.environments.states)
        self._append("actions", 0)  # not read: the model predicts it
        self._append("steps", np.minimum(self._steps, MAX_STEPS - 1))
        self._append("padding_mask", True)
        logits = np.asarray(self._run(inputs))[:, -1]
        actions, _ = sample_actions(logits, self._generator)
        inputs["actions"][:, -1] = actions
        rewards, _ = self.environments.step(actions)
        self._wanted -= rewards
        self._steps += 1
        return actions, logits

    def _append(self, name, values):
        array = self._inputs[name]
        array[:, :-1] = array[:, 1:]
        array[:, -1] = values
