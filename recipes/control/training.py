"""Runs of the recipe, one for each agent and seed, and their comparison."""

import dataclasses
import os
import time

import keras
import numpy as np

from keras_attn import optimizers

from .. import files
from ..optimizer import JIT_COMPILE
from ..run import TrainingRun
from ..settings import check_settings
from .agents import build
from .environments import Environments
from .proximal_policy import ProximalPolicy
from .returns import draw, table
from .rollouts import Rollouts

# Seeds of training environments start at a multiple of this, seeds of the test at its half.
HELD_OUT = 1_000_000


def run(options, started):
    """Train and test all agents, and write their table and curves."""
    if options.strategy not in ("none", "mirrored"):
        raise ValueError(
            "Agents act in environments of one process: --strategy must be none or mirrored. "
            f"Received: --strategy {options.strategy}."
        )
    cards = {name: [] for name in options.models}
    for name in options.models:
        for seed in range(options.seed, options.seed + options.seeds):
            out = os.path.join(options.out, f"{name}-{seed}")
            cards[name].append(run_agent(name, dataclasses.replace(options, seed=seed, out=out)))
    if keras.backend.backend() != "tensorflow":
        print(
            f"Trained: {options.out}/*/model.keras. The same command with KERAS_BACKEND=tensorflow "
            "tests the agents, exports them and compares them."
        )
        return
    lines = table(cards)
    draw(cards, os.path.join(options.out, "returns.png"))
    print("\n".join(lines))
    files.write(os.path.join(options.out, "table.md"), "\n".join(lines) + "\n")
    print(f"Curves: {options.out}/returns.png\nTable:  {options.out}/table.md")


def run_agent(name, options):
    """Return the card of one run: the existing one, unless `--episodes` differs from it."""
    path = os.path.join(options.out, "card.json")
    if os.path.exists(path):
        settings = os.path.join(options.out, "settings.json")
        check_settings(settings, {"model": name, **options.identity()}, options.out)
        names = ("task", "results", "history", "steps", "parameters")
        card = files.read_object(path, "delete it, and the run is tested again", *names)
        if card["results"]["test"]["episodes"] == options.episodes:
            return card
    print(f"{name}, seed {options.seed}", flush=True)
    started = time.monotonic()
    keras.backend.clear_session()
    keras.utils.set_random_seed(options.seed)
    return AgentRun(name, options).complete(started)


class AgentRun(TrainingRun):
    """Training, test and export of one agent with one seed in the directory `options.out`."""

    curve = "return"

    def __init__(self, name, options):
        super().__init__(options, {"model": name, **options.identity()})
        self.check_batch("num_envs")
        self.name = name
        environments = Environments(options.env, options.num_envs, options.seed * HELD_OUT)
        with self.scope():
            self.agent = build(name, environments.state_size, environments.num_actions, options)
            self.model = self.agent.model
            self.training_model = ProximalPolicy(self.model, entropy_weight=options.entropy_weight)
            self.training_model.compile(
                optimizers.Adam(options.learning_rate, global_clipnorm=options.clip_norm),
                jit_compile=JIT_COMPILE,
            )
            self.training_model.optimizer.build(self.training_model.trainable_variables)
        self.rollouts = Rollouts(environments, self.agent, options)

    def train(self):
        """Train, or resume training with new episodes.

        The current agent makes its own training data, so `fit` could not read them ahead.
        """
        options = self.options
        resume = self.resume_callback()
        first = resume.initial_epoch(self.training_model)
        if first == options.epochs:
            return
        callbacks = keras.callbacks.CallbackList(
            [Returns(self.rollouts.environments), *self.log_callbacks(first), resume],
            add_progbar=True,
            model=self.training_model,
            verbose=1 if os.isatty(1) else 2,
            epochs=options.epochs,
            steps=options.rollouts_per_epoch,
        )
        callbacks.on_train_begin()
        for epoch in range(first, options.epochs):
            callbacks.on_epoch_begin(epoch)
            found = []
            for rollout in range(options.rollouts_per_epoch):
                callbacks.on_train_batch_begin(rollout)
                found += self._learn(self._distribute(self.rollouts.collect()))
                callbacks.on_train_batch_end(rollout, found[-1])
            means = {name: float(np.mean([step[name] for step in found])) for name in found[0]}
            callbacks.on_epoch_end(epoch, means)
        callbacks.on_train_end()

    def _learn(self, rollout):
        """Train on a rollout, and return the metrics of each pass over it."""
        passes = range(self.options.passes)
        return [self.training_model.train_on_batch(*rollout, return_dict=True) for _ in passes]

    def _distribute(self, rollout):
        """Return a rollout of which each replica has its rows; on JAX Keras divides it."""
        count = self.devices.num_replicas_in_sync
        if count == 1 or keras.backend.backend() != "tensorflow":
            return rollout

        def distribute(array):
            parts = [keras.ops.convert_to_tensor(part) for part in np.split(array, count)]
            return self.devices.experimental_distribute_values_from_function(
                lambda context: parts[context.replica_id_in_sync_group]
            )

        return keras.tree.map_structure(distribute, rollout)

    def evaluate(self):
        """Return the mean return of episodes in other environments, with sampled actions."""
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
        """Write the next version under `export/`, of a model whose memory a client can hold."""
        if hasattr(self.model, "initial_memory"):
            super().export()

    def steps(self):
        """Return the number of steps of all environments."""
        return self.options.steps

    def card_entries(self):
        return {"task": self.options.env, "model": self.name}


class Returns(keras.callbacks.Callback):
    """Log the mean return of the episodes that ended in an epoch, as `return`."""

    def __init__(self, environments):
        super().__init__()
        self._environments = environments

    def on_epoch_begin(self, epoch, logs=None):
        self._environments.returns.clear()

    def on_epoch_end(self, epoch, logs=None):
        returns = self._environments.returns
        logs["return"] = float(np.mean(returns)) if returns else float("nan")
