"""Returns of a Decision Transformer that learned from good and bad episodes, by what it reads."""

import dataclasses
import functools
import math
import sys
import tempfile

import numpy as np

from ..control.agents import build
from ..control.environments import Environments, training_seed
from ..control.episodes import FIELDS, Episodes
from ..control.options import OFFLINE, RecipeOptions
from ..control.rollouts import Rollouts
from ..control.training import new_run
from .experiment import Experiment

ACTOR = "transformer_xl"
STEPS = 300_000  # of both trainings, and of the stored episodes of each actor


def run(case):
    """Return the mean returns of the data, of their better half and of the trained model.

    A case is (target, scale): functions of `Episodes` that return what the model is asked for, and
    the number by which it reads returns divided.
    """
    target, scale = case
    seed = np.random.randint(2**16)
    good, bad = stored_episodes(RecipeOptions.parse(["--steps", str(STEPS), "--seed", str(seed)]))
    episodes = mixed(good, bad, np.random.default_rng(seed))
    episodes.scale, asked = scale(episodes), float(target(episodes))
    with tempfile.TemporaryDirectory() as folder:
        options = ["--steps", str(STEPS), "--seed", str(seed), "--behaviour", "random"]
        options = RecipeOptions.parse([*options, "--out", folder, "--target-return", str(asked)])
        learner = new_run(OFFLINE, options)
        learner.episodes = episodes
        learner.train()
        acted = learner.evaluate()["test"]["value"]
    returns = {"data": episodes.totals, "better half": good.totals, "model": acted}
    return {name: float(np.mean(values)) for name, values in returns.items()}


@functools.lru_cache(maxsize=1)
def stored_episodes(options):
    """Train an actor, and return `Episodes` of it and of random actions.

    The seed is one of the options, so that the values of one seed share a training.
    """
    with tempfile.TemporaryDirectory() as folder:
        trained = new_run(ACTOR, dataclasses.replace(options, out=folder))
        trained.train()
    random = build("random", *_sizes(options), options)
    return [Episodes.play(_rollouts(agent, options), STEPS) for agent in (trained.agent, random)]


def _sizes(options):
    environments = Environments(options.env, 1, training_seed(options.seed))
    return environments.state_size, environments.num_actions


def _rollouts(agent, options):
    seed = training_seed(options.seed)
    return Rollouts(Environments(options.env, options.num_envs, seed), agent, options)


def mixed(good, bad, generator):
    """Return the episodes of both, in a random order."""
    parts = []
    for episodes in (good, bad):
        firsts = np.flatnonzero(episodes.starts)[1:]
        streams = [np.split(getattr(episodes, name), firsts) for name in FIELDS]
        parts += zip(*streams, strict=True)
    generator.shuffle(parts)
    streams = zip(*parts, strict=True)
    return Episodes(**{name: np.concatenate(stream) for name, stream in zip(FIELDS, streams)})


def _scale(episodes):
    return episodes.scale


def _hidden(episodes):
    return math.inf  # all returns that the model reads are 0


EXPERIMENT = Experiment(
    "stored_returns",
    "Does a Decision Transformer act better than the mean of its episodes?",
    f"A `{ACTOR}` of two layers trains {STEPS:,} steps of popgym's `RepeatPreviousEasy` by "
    f"`recipes.control`. Then it and an actor of random actions play {STEPS:,} steps each. A "
    "`decision_transformer` learns from all of these episodes, by as many updates as the actor "
    "made, and plays 200 new ones. It is asked for the highest or for the mean of the stored "
    "returns. `without returns` it reads none, neither in training nor in the test, and imitates "
    "the episodes. The numbers are mean returns, from -1 to 1.",
    {
        "highest return": (lambda episodes: episodes.totals.max(), _scale),
        "mean return": (lambda episodes: episodes.totals.mean(), _scale),
        "without returns": (lambda episodes: 0.0, _hidden),
    },
    run,
    digits=3,
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
