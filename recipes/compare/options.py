"""Options of the recipe."""

import dataclasses

from ..options import Options, SizeOptions, changed, option
from ..text.options import TextOptions

AXES = "score pattern position norm residual feed_forward depth memory loss".split()


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeOptions(
    TextOptions, SizeOptions, num_layers=4, num_heads=4, hidden_dim=128, intermediate_dim=512
):
    """Options of `recipes.compare`."""

    DESCRIPTION = (
        "Trains the same small language model with every value of one axis, on the same text and "
        "for the same number of tokens, and writes a table and its curves. The same command with "
        "the same --out trains the values that are missing."
    )

    axis: str = option(None, required=True, choices=AXES)
    values: tuple[str, ...] = option(
        (), "train only these (default: all)", identity=False, flag="--values"
    )
    out: str | None = changed(Options, "out", None, "default: runs/compare-AXIS")
    dropout: float = option(0.0, within=(0, 1))
    context: int = changed(TextOptions, "context", 128, at_least=8)
    train_tokens: int = changed(TextOptions, "train_tokens", 1_000_000)
    valid_tokens: int = changed(TextOptions, "valid_tokens", 100_000, identity=True)

    def resolve(self):
        return super().resolve().fill(out=f"runs/compare-{self.axis}")
