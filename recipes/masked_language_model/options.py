"""Options of the recipe."""

import dataclasses

from ..common.options import RunOptions, SizeOptions, option
from ..text.options import TextOptions

MODELS = ("bert", "modern_bert", "longformer", "big_bird", "perceiver")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeOptions(
    TextOptions,
    SizeOptions,
    RunOptions,
    out="runs/masked_language_model",
    tokenizer="bpe",
    num_layers=4,
    num_heads=4,
    hidden_dim=256,
    intermediate_dim=1024,
):
    """Options of `recipes.masked_language_model`."""

    DESCRIPTION = (
        "Trains a model to predict masked tokens from both sides, evaluates it on held-out text, "
        "exports it and writes a result card. Without --data-dir and --text the text is the source "
        "of Python's standard library. The same command with the same --out resumes a run."
    )

    model: str = option("bert", choices=MODELS)
    dropout: float = option(0.1, at_least=0, below=1)
    mask_rate: float = option(0.15, "share of the tokens to predict", above=0, below=1)
