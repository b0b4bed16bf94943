"""Options of the recipe."""

import dataclasses

from ..common.options import Options, SizeOptions, changed, option
from ..text.options import TextOptions

AXES = (
    "score",
    "pattern",
    "position",
    "residual",
    "head_size",
    "depth",
    "memory",
    "loss",
    "norm",
    "feed_forward",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeOptions(
    TextOptions, SizeOptions, num_layers=4, num_heads=4, hidden_dim=128, intermediate_dim=512
):
    """Options of `recipes.compare`."""

    DESCRIPTION = (
        "Trains the same small language model with every value of an axis, on the same text and "
        "for the same number of tokens, and writes a table and a picture of each axis. The same "
        "command with the same --out trains the values that are missing."
    )

    axis: tuple[str, ...] = option(
        (), "one or more, in this order", identity=False, required=True, choices=AXES
    )
    values: tuple[str, ...] = option((), "train only these (default: all)", identity=False)
    seeds: tuple[int, ...] = option(
        (), "train each value with each of these (default: the one of --seed)", identity=False
    )
    seed: int = changed(Options, "seed", 0, identity=False)
    out: str | None = changed(Options, "out", None, "default: runs/compare")
    dropout: float = option(0.0, at_least=0, below=1)
    context: int = changed(TextOptions, "context", 128, at_least=8)
    train_tokens: int = changed(TextOptions, "train_tokens", 1_000_000)
    valid_tokens: int = changed(TextOptions, "valid_tokens", 100_000, identity=True)

    def resolve(self):
        options = super().resolve().fill(out="runs/compare")
        return dataclasses.replace(options, seeds=options.seeds or (options.seed,))
