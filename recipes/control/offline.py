"""A Decision Transformer that learns from stored episodes, and acts to reach a given return."""

import functools
import os

import keras

from keras_attn import losses, metrics, models, optimizers

from ..common import dry_run, files
from ..common.epoch_dataset import EpochDataset
from ..common.run import MODEL, TrainingRun
from ..common.settings import check_settings
from .agents import build
from .environments import TEST_SEED, Environments, training_seed
from .episodes import MAX_STEPS, Episodes, Windows
from .returns import first_returns, summary_of
from .rollouts import Rollouts
from .trajectory_actor import TrajectoryActor

FILE_NAME = "episodes.npz"
HELD_OUT_SHARE, VALID_BATCHES = 0.1, 10
# Settings that a behaviour must share, since they decide what its policy reads and does.
POLICY = ("recipe", "env", "memory", "num_layers", "num_heads", "hidden_dim", "intermediate_dim")


class OfflineRun(TrainingRun):
    """Training and test of a `decision_transformer` in the directory `options.out`.

    It learns from the episodes of `--behaviour`: as many steps as the other agents take themselves,
    by as many updates. Each reads `--num-envs` windows of `--memory` steps.
    """

    curve = "val_accuracy"

    def __init__(self, name, options):
        super().__init__(options, {"model": name, **options.identity()})
        self.check_batch("num_envs")
        self.name = name
        behaviour = f"{options.behaviour}-{options.seed}"
        folder = os.path.join(os.path.dirname(options.out), behaviour)
        self._behaviour = os.path.join(folder, MODEL)
        is_ready = options.behaviour == "random" or os.path.exists(self._behaviour)
        if not (is_ready or options.dry_run):
            raise ValueError(
                f"--behaviour {options.behaviour} must have been trained under the same --out: "
                f"add it to --models. Received: no file {self._behaviour}."
            )
        if options.behaviour != "random":
            _check_behaviour(folder, options)
        environments = Environments(options.env, 1, training_seed(options.seed))
        with self.scope():
            self.model = models.decision_transformer(
                environments.state_size,
                environments.num_actions,
                discrete=True,
                **options.sizes(),
                max_steps=MAX_STEPS,
                name=name,
            )
            self.model.compile(
                optimizers.Adam(options.learning_rate, global_clipnorm=options.clip_norm),
                loss=losses.LabelSmoothedCrossentropy(0.0, ignore_class=-1),
                weighted_metrics=[metrics.TokenAccuracy(ignore_class=-1, name="accuracy")],
                jit_compile=self.jit_compile,
            )

    @functools.cached_property
    def episodes(self):
        """Episodes of the behaviour, read from the run's directory or stored there."""
        path = self.path(FILE_NAME)
        if os.path.exists(path):
            return Episodes.load(path)
        episodes = self._play(self.options.steps, is_trained=True)
        episodes.save(path)
        return episodes

    def training_data(self):
        options = self.options
        train, valid = self.episodes.divide(HELD_OUT_SHARE)
        steps = options.rollouts_per_epoch * options.passes
        scale = self.episodes.scale
        return self._windows(train, steps, scale), self._windows(valid, VALID_BATCHES, scale)

    def estimate(self):
        steps = self.options.rollouts_per_epoch * self.options.passes
        episodes = self._play(1, is_trained=False)
        train = self._windows(episodes, steps, episodes.scale)
        measured = self.compiled_model, train, self.scope
        return dry_run.estimate(self, steps, lambda n: dry_run.fit_seconds(*measured, n))

    def evaluate(self):
        """Return the mean return of episodes in other environments, with sampled actions."""
        options, totals = self.options, self.episodes.totals
        target = float(totals.max()) if options.target_return is None else options.target_return
        environments = Environments(options.env, options.num_envs, TEST_SEED + options.seed)
        actor = TrajectoryActor(self.model, environments, target, self.episodes.scale, options)
        returns = summary_of(first_returns(environments, actor.step, options.episodes))
        stored = {"mean": float(totals.mean()), "max": float(totals.max()), "number": len(totals)}
        return {"test": {**returns, "target": target, "stored": stored}}

    def export(self):
        """Write nothing: no signature acts, and the caller of a server would hold the episode."""

    def steps(self):
        """Return the number of stored steps."""
        return self.options.steps

    def card_entries(self):
        return {"task": self.options.env, "model": self.name}

    def _windows(self, episodes, batches, scale):
        options = self.options
        sizes = options.memory, options.num_envs, batches
        return EpochDataset(Windows(episodes, *sizes, scale, options.seed))

    def _play(self, steps, is_trained):
        options, name = self.options, self.options.behaviour
        environments = Environments(options.env, options.num_envs, training_seed(options.seed))
        agent = build(name, environments.state_size, environments.num_actions, options)
        if is_trained and name != "random":
            trained = keras.models.load_model(self._behaviour, compile=False)
            agent.model.set_weights(trained.get_weights())
        return Episodes.play(Rollouts(environments, agent, options), steps)


def _check_behaviour(folder, options):
    """Refuse a behaviour that was trained in another environment, or is a model of other sizes."""
    path = os.path.join(folder, "settings.json")
    if os.path.exists(path):
        trained = files.read_object(path, "delete its directory, and train the behaviour again")
        identity = options.identity()
        check_settings(path, {**trained, **{name: identity[name] for name in POLICY}}, folder)
