"""Options of the recipe."""

import dataclasses

from ..common.options import RunOptions, SizeOptions, option

# The gates of the paper by the name of their agent; gtrxl has the one that the paper prefers.
GATES = {
    "gtrxl": "gru",
    "gtrxl_highway": "highway",
    "gtrxl_input": "input",
    "gtrxl_output": "output",
    "gtrxl_sigmoid_tanh": "sigmoid_tanh",
    "trxl_i": "sum",
}
ACTORS = (*GATES, "transformer_xl", "lstm", "memoryless")
OFFLINE = "decision_transformer"
AGENTS = (*ACTORS, OFFLINE)
COMPARED = ("gtrxl", "transformer_xl", "lstm", "memoryless")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeOptions(
    SizeOptions,
    RunOptions,
    out="runs/control",
    num_layers=2,
    num_heads=4,
    hidden_dim=64,
    intermediate_dim=128,
):
    """Options of `recipes.control`."""

    DESCRIPTION = (
        "Trains actors with different memories in one environment, and a Decision Transformer on "
        "stored episodes, and draws their returns. The same command with the same --out resumes "
        "the training."
    )

    env: str = option("popgym-RepeatPreviousEasy-v0", "environment's id")
    models: tuple[str, ...] = option(
        COMPARED, f"default: {', '.join(COMPARED)}", identity=False, choices=AGENTS
    )
    seeds: int = option(3, "runs of each model", identity=False, at_least=1)
    memory: int = option(64, "steps that each layer remembers", at_least=1)
    num_envs: int = option(16, "environments at a time", at_least=1)
    rollout: int = option(64, "steps of a rollout, between two updates", at_least=1)
    passes: int = option(4, "training passes over each rollout", at_least=1)
    steps: int = option(1_000_000, "steps of all environments", at_least=1)
    epochs: int = option(50, "equal parts of the training", at_least=1)
    learning_rate: float = option(1e-3, above=0)
    discount: float = option(0.95, "discount factor of the return", at_least=0, at_most=1)
    trace: float = option(
        0.9, "lambda of the generalised advantage estimate", at_least=0, at_most=1
    )
    clip_norm: float = option(0.5, "largest norm of the whole gradient", at_least=0)
    entropy_weight: float = option(0.01, "weight of the entropy bonus", at_least=0)
    behaviour: str = option(
        "gtrxl",
        "policy whose episodes decision_transformer learns from: a model that was trained before "
        "it, with the same --out, or random",
        choices=("random", *ACTORS),
    )
    target_return: float | None = option(
        None,
        "return that decision_transformer is asked for (default: the highest stored)",
        identity=False,
    )
    episodes: int = option(200, "episodes of the test", identity=False, at_least=1)

    def resolve(self):
        """Round the steps up to whole rollouts in equal epochs; train the behaviour first."""
        steps_per_rollout = self.num_envs * self.rollout
        rollouts = -(-self.steps // steps_per_rollout)
        epochs = min(self.epochs, rollouts)
        steps = epochs * -(-rollouts // epochs) * steps_per_rollout
        models = tuple(name for name in AGENTS if name in self.models)
        return dataclasses.replace(super().resolve(), epochs=epochs, steps=steps, models=models)

    @property
    def rollouts_per_epoch(self):
        return self.steps // (self.epochs * self.num_envs * self.rollout)
