"""One run of the recipe: one agent, one seed."""

import os

import keras
import numpy as np

from keras_attn import optimizers

from .. import run
from ..optimizer import COMPILED
from .agents import build
from .environments import Environments
from .options import settings
from .proximal_policy import ProximalPolicy
from .rollouts import Rollouts

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
        self.check_shared("num_envs")
        self.name = name
        environments = Environments(options.env, options.num_envs, options.seed * HELD_OUT)
        with self.scope():
            self.agent = build(name, environments.state_size, environments.num_actions, options)
            self.model = self.agent.model
            self.trained = ProximalPolicy(self.model, entropy_weight=options.entropy_weight)
            self.trained.compile(
                optimizers.Adam(options.learning_rate, global_clipnorm=options.clip_norm),
                jit_compile=COMPILED,
            )
            self.trained.optimizer.build(self.trained.trainable_variables)
        self.rollouts = Rollouts(environments, self.agent, options)

    def train(self):
        """Trains, or goes on training; episodes begin anew.

        What is learned from is lived through by the agent as it then is, so that no `fit` can read
        it ahead.
        """
        options = self.options
        resume = self.checkpoints()
        first = resume.initial_epoch(self.trained)
        if first == options.epochs:
            return
        callbacks = keras.callbacks.CallbackList(
            [Returns(self.rollouts.environments), *self.logs(first), resume],
            add_progbar=True,
            model=self.trained,
            verbose=1 if os.isatty(1) else 2,
            epochs=options.epochs,
            steps=options.stretches,
        )
        callbacks.on_train_begin()
        for epoch in range(first, options.epochs):
            callbacks.on_epoch_begin(epoch)
            found = []
            for stretch in range(options.stretches):
                callbacks.on_train_batch_begin(stretch)
                found += self._learn(self._shared(self.rollouts.collect()))
                callbacks.on_train_batch_end(stretch, found[-1])
            means = {name: float(np.mean([step[name] for step in found])) for name in found[0]}
            callbacks.on_epoch_end(epoch, means)
        callbacks.on_train_end()

    def _learn(self, stretch):
        """The metrics of each pass over a stretch."""
        passes = range(self.options.passes)
        return [self.trained.train_on_batch(*stretch, return_dict=True) for _ in passes]

    def _shared(self, stretch):
        """A stretch of which each replica has its rows; on JAX Keras parts it."""
        count = self.devices.num_replicas_in_sync
        if count == 1 or keras.backend.backend() != "tensorflow":
            return stretch

        def shared(array):
            parts = [keras.ops.convert_to_tensor(part) for part in np.split(array, count)]
            return self.devices.experimental_distribute_values_from_function(
                lambda context: parts[context.replica_id_in_sync_group]
            )

        return keras.tree.map_structure(shared, stretch)

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
