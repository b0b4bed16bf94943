"""Environments with discrete actions, several at a time."""

import numpy as np

# Seeds of training begin at a multiple of the stride and end at its half, where those of the test
# begin.
SEED_STRIDE = 1_000_000
TEST_SEED = SEED_STRIDE // 2


def training_seed(seed, offset=0):
    """Return a seed of environments for the training of a run with `seed`."""
    return seed * SEED_STRIDE + offset % TEST_SEED


class Environments:
    """Copies of one environment, each reset when its episode ends.

    Observations become vectors, numbers as they are and choices one-hot. A truncated episode counts
    as one that ended.

    Args:
        name: str. A gymnasium id; ids of popgym begin with "popgym-".
        count: int. Number of copies N.
        seed: int. That of the first copy; each other has the next one.

    Attributes:
        states: float32 (N, D), the current observations.
        starts: bool (N,), True at the first observation of an episode.
        returns: list of a list for each copy, the sums of rewards of its episodes that have ended.

    Raises:
        ImportError: if gymnasium, popgym for its ids, or a package of the environment is not
            installed.
        ValueError: if there is no such environment, or its actions are not discrete.
    """

    def __init__(self, name, count, seed):
        try:
            import gymnasium

            if name.startswith("popgym-"):
                import popgym  # noqa: F401  registers its ids
        except ImportError as error:
            raise ImportError(
                f"The environment {name} needs the package {error.name}: "
                "pip install 'keras_attn[rl]'."
            ) from error
        try:
            self._environments = [gymnasium.make(name) for _ in range(count)]
        except gymnasium.error.DependencyNotInstalled as error:
            raise ImportError(f"The environment {name} needs another package: {error}") from error
        except gymnasium.error.Error as error:
            raise ValueError(f"There is no environment {name}: {error}") from error
        first = self._environments[0]
        if not isinstance(first.action_space, gymnasium.spaces.Discrete):
            raise ValueError(
                f"The environment must have discrete actions. Received: {name} with actions "
                f"{first.action_space}."
            )
        self._flatten = gymnasium.spaces.utils.flatten
        self._space, self._first_action = first.observation_space, int(first.action_space.start)
        self.state_size = gymnasium.spaces.utils.flatdim(self._space)
        self.num_actions = int(first.action_space.n)
        observed = [e.reset(seed=seed + i)[0] for i, e in enumerate(self._environments)]
        self.states = np.stack([self._vector(x) for x in observed])
        self.starts = np.ones(count, bool)
        self.returns = [[] for _ in range(count)]
        self._sums = np.zeros(count)

    def step(self, actions):
        """Take an action (N,) in each copy; return rewards float32 (N,) and ends bool (N,)."""
        rewards, ended = np.zeros(len(actions), "float32"), np.zeros(len(actions), bool)
        for row, (environment, action) in enumerate(zip(self._environments, actions, strict=True)):
            observed, reward, terminated, truncated, _ = environment.step(
                self._first_action + int(action)
            )
            rewards[row], ended[row] = reward, terminated or truncated
            self._sums[row] += reward
            if ended[row]:
                observed, _ = environment.reset()
                self.returns[row].append(float(self._sums[row]))
                self._sums[row] = 0
            self.states[row] = self._vector(observed)
        self.starts = ended
        return rewards, ended

    def _vector(self, observed):
        return np.asarray(self._flatten(self._space, observed), "float32")
