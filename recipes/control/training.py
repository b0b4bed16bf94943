"""One run of the recipe: one agent, one seed."""

import os

import keras
import numpy as np

from keras_attn import training
from recipes import run
from recipes.control.agents import build
from recipes.control.environments import Environments
from recipes.control.options import settings
from recipes.control.proximal_policy import ProximalPolicy
from recipes.control.rollouts import Rollouts

# Seeds of the environments that nothing is learned from.
HELD_OUT = 1_000_000


class Run(run.Run):
    """A run in the directory `options.out`, which a later run with the same options continues.

    Args:
        name: str. The agent's.
        options: of the command line, with the `seed` and the `out` of this run.
    """

    curve = "return"

    def __init__(self, name, options):
        super().__init__(options, {"model": name, **settings(options)})
        self.name = name
        environments = Environments(options.env, options.num_envs, options.seed * HELD_OUT)
        with self.scope():
            self.agent = build(name, environments.state_size, environments.num_actions, options)
            self.model = self.agent.model
            self.trained = ProximalPolicy(self.model, entropy_weight=options.entropy_weight)
            self.trained.compile(
                training.Adam(options.learning_rate, global_clipnorm=options.clip_norm),
                jit_compile=False,
            )
        self.rollouts = Rollouts(environments, self.agent, options)

    def train(self):
        """Trains, or goes on training; episodes begin anew."""
        options = self.options
        resume = self.checkpoints()
        first = resume.initial_epoch(self.trained)
        if first < options.epochs:
            self.trained.fit(
                self.rollouts.as_dataset(options.stretches * (options.epochs - first)),
                epochs=options.epochs,
                initial_epoch=first,
                steps_per_epoch=options.stretches * options.passes,
                shuffle=False,  # a stretch goes on where the last one ended
                callbacks=[Returns(self.rollouts.environments), *self.logs(first), resume],
                verbose=1 if os.isatty(1) else 2,
            )

    def evaluate(self):
        """The returns of episodes in other environments, acted as in training."""
        options = self.options
        environments = Environments(options.env, options.num_envs, HELD_OUT // 2 + options.seed)
        rollouts = Rollouts(environments, self.agent, options)
        while len(environments.returns) < options.episodes:
            rollouts.collect()
        returns = environments.returns[: options.episodes]
        return {
            "test": {
                "metric": "return",
                "value": float(np.mean(returns)),
                "standard_error": float(np.std(returns) / np.sqrt(len(returns))),
                "episodes": len(returns),
            }
        }

    def export(self):
        """Writes the next version under `export/`, of a model whose memory a client can hold."""
        from keras_attn import export

        if hasattr(self.model, "initial_memory"):
            self.exported = export.saved_model(
                self.model, self.path("export"), version=self.options.export_version
            )

    def steps(self):
        """How many steps the environments made."""
        options = self.options
        return options.epochs * options.stretches * options.num_envs * options.rollout

    def facts(self):
        return {"task": self.options.env, "model": self.name}


class Returns(keras.callbacks.Callback):
    """Logs the mean return of the episodes that ended in an epoch, as `return`."""

    def __init__(self, environments):
        super().__init__()
        self._environments = environments

    def on_epoch_begin(self, epoch, logs=None):
        self._environments.returns.clear()

    def on_epoch_end(self, epoch, logs=None):
        returns = self._environments.returns
        logs["return"] = float(np.mean(returns)) if returns else float("nan")
