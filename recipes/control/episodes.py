"""Stored episodes, and windows of their steps."""

import numpy as np

from keras_attn.files import atomic_file

FIELDS = ("states", "actions", "rewards", "starts")
# Steps of an episode that have positions of their own; later ones have that of the last.
MAX_STEPS = 1000


class Episodes:
    """Whole episodes, one after another.

    Args:
        states: float32 (n, D).
        actions: int (n,).
        rewards: float32 (n,).
        starts: bool (n,), True at the first step of each episode; n >= 1, and the first is True.

    Attributes:
        returns: float32 (n,), the sum of the rewards from each step to the end of its episode.
        firsts: int (n,), the index of the first step of each step's episode.
        totals: float32 (episodes,), the return of each episode.
        scale: float. The largest magnitude of a return, by which a model's returns are divided.
    """

    def __init__(self, states, actions, rewards, starts):
        self.states, self.actions, self.rewards, self.starts = states, actions, rewards, starts
        (first,) = np.nonzero(starts)
        lengths = np.diff([*first, len(starts)])
        self.firsts = np.repeat(first, lengths)
        # The sum from each step to the last one stored, less the sum of the later episodes.
        sums = np.cumsum(np.append(rewards, 0.0)[::-1], dtype="float64")[::-1]
        self.returns = (sums[:-1] - np.repeat(sums[first + lengths], lengths)).astype("float32")
        self.totals = self.returns[first]
        self.scale = float(np.abs(self.returns).max()) or 1.0

    @classmethod
    def play(cls, rollouts, steps):
        """Store the episodes that end within `steps` steps of all environments, at least two.

        `rollouts` are `Rollouts` that have not begun.
        """
        steps_taken, environments = [], rollouts.environments
        while (
            len(steps_taken) * len(environments.starts) < steps
            or sum(map(len, environments.returns)) < 2
        ):
            steps_taken.append(rollouts.step())
        streams = {
            name: np.stack([x[name] for x in steps_taken], axis=1) for name in (*FIELDS, "ends")
        }
        # Of each environment, the steps up to the end of its last whole episode.
        is_whole = np.cumsum(streams.pop("ends")[:, ::-1], axis=1)[:, ::-1] > 0
        return cls(**{name: x[is_whole] for name, x in streams.items()})

    @classmethod
    def load(cls, path):
        """Read the file of `save`.

        Raises:
            ValueError: if the file is damaged.
        """
        try:
            with np.load(path) as file:
                return cls(**{name: file[name] for name in FIELDS})
        except Exception as error:  # NumPy, zlib and zipfile raise many kinds on damaged bytes
            raise ValueError(
                f"The file {path} is damaged; delete it, and episodes are stored again."
            ) from error

    def save(self, path):
        """Write the steps to a `.npz` file."""
        with atomic_file(path) as temporary:
            np.savez(temporary, **{name: getattr(self, name) for name in FIELDS})

    def divide(self, share):
        """Return two `Episodes`: all but the last `share` of the episodes, and that share."""
        held_out = max(1, int(len(self.totals) * share))
        first = np.flatnonzero(self.starts)[-held_out]
        arrays = [getattr(self, name) for name in FIELDS]
        return Episodes(*(x[:first] for x in arrays)), Episodes(*(x[first:] for x in arrays))


class Windows:
    """Batches of windows of `length` steps, each of which ends at a step drawn by the seed.

    A window begins with padding if its episode began less than `length` steps before. Its inputs
    are those of a `TrajectoryModel`, its labels the actions, -1 at padding.

    Args:
        episodes: `Episodes`.
        length, batch_size, batches: ints. Batches of an epoch.
        scale: float. Number by which returns are divided.
        seed: int.
    """

    def __init__(self, episodes, length, batch_size, batches, scale, seed):
        self._episodes, self._length, self._batch_size = episodes, length, batch_size
        self._batches, self._scale, self._seed = batches, scale, seed

    def __len__(self):
        return self._batches

    def batch(self, epoch, index):
        random = np.random.default_rng([self._seed, epoch, index])
        return self.ending_at(random.integers(len(self._episodes.actions), size=self._batch_size))

    def ending_at(self, last):
        """Return inputs and labels of the windows that end at steps (B,)."""
        episodes, first = self._episodes, self._episodes.firsts[last][:, None]
        indices = last[:, None] - np.arange(self._length)[::-1]  # (B, T)
        real = indices >= first
        indices = np.maximum(indices, first)
        inputs = {
            "returns": episodes.returns[indices] / np.float32(self._scale),
            "states": episodes.states[indices],
            "actions": episodes.actions[indices].astype("int32"),
            "steps": np.minimum(indices - first, MAX_STEPS - 1).astype("int32"),
            "padding_mask": real,
        }
        return inputs, np.where(real, inputs["actions"], -1)
