"""Runs of the recipe, one for each agent and seed, and their comparison."""

import dataclasses
import os
import time

import keras
import numpy as np

from keras_attn import optimizers

from ..common import dry_run, files
from ..common.progress import duration, fit_verbosity
from ..common.run import FILES, TrainingRun
from ..common.settings import check_out, check_settings
from .agents import build
from .environments import TEST_SEED, Environments, training_seed
from .offline import OfflineRun
from .options import OFFLINE
from .proximal_policy import ProximalPolicy
from .returns import best_of, draw, first_returns, summary_of, table
from .rollouts import Rollouts


def run(options, started):
    """Train and test all agents, and write their table and curves."""
    if options.strategy not in ("none", "mirrored"):
        raise ValueError(
            "Agents act in environments of one process: --strategy must be none or mirrored. "
            f"Received: --strategy {options.strategy}."
        )
    check_out(options.out)
    # Runs have directories of their own in it; another recipe keeps its settings here.
    settings = os.path.join(options.out, "settings.json")
    check_settings(settings, {"recipe": options.recipe}, options.out)
    if options.dry_run:
        estimates, trained = estimate_agents(options)
        places = f"MODEL-SEED/, each with {FILES}; returns.png and table.md"
        print("\n".join(dry_run.report(options, estimates, places, trained=trained)))
        return
    cards = {
        name: [run_agent(name, own) for own in runs_of(name, options)] for name in options.models
    }
    if keras.backend.backend() != "tensorflow":
        print(
            f"Trained: {options.out}/*/model.keras. The same command with KERAS_BACKEND=tensorflow "
            "tests the agents, exports them and compares them."
        )
        return
    lines, best = table(cards), best_of(cards)
    draw(cards, os.path.join(options.out, "returns.png"))
    print("\n".join(lines))
    files.write(os.path.join(options.out, "table.md"), "\n".join(lines) + "\n")
    print(f"Curves: {options.out}/returns.png\nTable:  {options.out}/table.md")
    print(
        f"Done in {duration(time.monotonic() - started)}: {options.env}, best {best} of "
        f"{len(cards)} models, {options.seeds} seeds each; {options.steps:,} steps a run."
    )


def runs_of(name, options):
    """Yield the options of the runs of an agent, one for each seed."""
    for seed in range(options.seed, options.seed + options.seeds):
        out = os.path.join(options.out, f"{name}-{seed}")
        yield dataclasses.replace(options, seed=seed, out=out)


def estimate_agents(options):
    """Return the `Estimate` of all seeds of each agent, by name, and the names of trained runs.

    The time of a step is measured with the first seed that has two steps left, since the first step
    compiles, and with each seed that has begun.
    """
    estimates, trained = {}, []
    for name in options.models:
        estimated, measured = [], None
        for own in runs_of(name, options):
            if os.path.exists(os.path.join(own.out, "card.json")):
                trained.append(f"{name}, seed {own.seed}")
            elif measured and len(measured.seconds) > 1 and not os.path.exists(own.out):
                estimated.append(measured._replace(done=0))
            else:
                estimated.append(new_run(name, own).estimate())
                measured = max(estimated, key=lambda estimate: len(estimate.seconds))
        if estimated:
            steps, done = (sum(getattr(e, key) for e in estimated) for key in ("steps", "done"))
            estimates[f"{name}, {len(estimated)} seeds"] = measured._replace(steps=steps, done=done)
    return estimates, trained


def run_agent(name, options):
    """Return the card of one run: the existing one, unless the options of its test differ."""
    path = os.path.join(options.out, "card.json")
    if os.path.exists(path):
        settings = os.path.join(options.out, "settings.json")
        check_settings(settings, {"model": name, **options.identity()}, options.out)
        names = ("task", "results", "history", "steps", "parameters", "options")
        card = files.read_object(path, "delete it, and the run is tested again", *names)
        own, tested = options.as_dict(), card["options"]
        test_options = ("episodes", "target_return") if name == OFFLINE else ("episodes",)
        if all(tested.get(key) == own[key] for key in test_options):
            return card
    started = time.monotonic()
    agent = new_run(name, options)
    print(f"{name}, seed {options.seed}", flush=True)
    return agent.complete(started)


def new_run(name, options):
    """Return a run that depends on no run before it."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(options.seed)
    return (OfflineRun if name == OFFLINE else AgentRun)(name, options)


class AgentRun(TrainingRun):
    """Training, test and export of one agent with one seed in the directory `options.out`."""

    curve = "return"

    def __init__(self, name, options):
        super().__init__(options, {"model": name, **options.identity()})
        self.check_batch("num_envs")
        self.name = name
        environments = Environments(options.env, 1, training_seed(options.seed))
        with self.scope():
            self.agent = build(name, environments.state_size, environments.num_actions, options)
            self.model = self.agent.model
            self.training_model = ProximalPolicy(self.model, entropy_weight=options.entropy_weight)
            self.training_model.compile(
                optimizers.Adam(options.learning_rate, global_clipnorm=options.clip_norm),
                jit_compile=self.jit_compile,
            )
            self.training_model.optimizer.build(self.training_model.trainable_variables)

    def train(self):
        """Train, or resume training after the last rollout that was saved, with new episodes.

        The current agent makes its own training data, so `fit` could not read them ahead.
        """
        options, per_epoch = self.options, self.options.rollouts_per_epoch
        resume = self.resume_callback()
        first, done = resume.restore(self.training_model)
        if first == options.epochs:
            return
        self.say_start(first, done, per_epoch, "rollout")
        rollouts = self._new_rollouts(first * per_epoch + done)
        callbacks = keras.callbacks.CallbackList(
            [Returns(rollouts.environments), *self.log_callbacks(first, done), resume],
            add_progbar=True,
            model=self.training_model,
            verbose=fit_verbosity(),
            epochs=options.epochs,
            steps=per_epoch - done,
        )
        callbacks.on_train_begin()
        for epoch in range(first, options.epochs):
            callbacks.on_epoch_begin(epoch)
            steps_losses = []
            for rollout in range(callbacks.params["steps"]):
                callbacks.on_train_batch_begin(rollout)
                steps_losses += self._learn(self._distribute(rollouts.collect()))
                callbacks.on_train_batch_end(rollout, steps_losses[-1])
            means = {
                name: float(np.mean([step[name] for step in steps_losses]))
                for name in steps_losses[0]
            }
            callbacks.on_epoch_end(epoch, means)
            callbacks.set_params({**callbacks.params, "steps": per_epoch})  # of the whole epochs
        callbacks.on_train_end()

    def _new_rollouts(self, first):
        """Return rollouts of new episodes after the first ones of the run."""
        options = self.options
        seed = training_seed(options.seed, first * options.num_envs)
        environments = Environments(options.env, options.num_envs, seed)
        return Rollouts(environments, self.agent, options, first)

    def estimate(self):
        per_epoch = self.options.rollouts_per_epoch
        return dry_run.estimate(self, per_epoch, self._rollout_seconds, "rollout")

    def _rollout_seconds(self, count):
        """Train on rollouts, and return the seconds of each."""
        seconds, rollouts = [], self._new_rollouts(0)
        for _ in range(count):
            started = time.monotonic()
            self._learn(self._distribute(rollouts.collect()))
            seconds.append(time.monotonic() - started)
        return seconds

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
        environments = Environments(options.env, options.num_envs, TEST_SEED + options.seed)
        rollouts = Rollouts(environments, self.agent, options)
        return {"test": summary_of(first_returns(environments, rollouts.step, options.episodes))}

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
        for returns in self._environments.returns:
            returns.clear()

    def on_epoch_end(self, epoch, logs=None):
        returns = sum(self._environments.returns, [])
        logs["return"] = float(np.mean(returns)) if returns else float("nan")
