"""Options of the recipe."""

import dataclasses

from ..options import OptionError, RunOptions, ScheduleOptions, changed, option
from ..text.options import TokenizerOptions

# Defaults that depend on the task.
_DATES = {
    "num_layers": 2,
    "dropout": 0.1,
    "tokenizer": "characters",
    "epochs": 5,
    "learning_rate": 0.003,
    "warmup_steps": 400,
    "average_last": 1,
    "max_length": 16,
    "beams": 1,
}
_TEXT = {
    "tokenizer": "bpe",
    "epochs": 48,
    "learning_rate": 0.005,
    "warmup_steps": 2000,
    "average_last": 10,
    "max_length": 96,
    "beams": 5,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeOptions(TokenizerOptions, ScheduleOptions, RunOptions):
    """Options of `recipes.translate`."""

    DESCRIPTION = (
        "Trains a Transformer to translate, evaluates it on held-out data, exports it and writes a "
        "result card. Without --data-dir the data are dates in many languages, made offline, to be "
        "written as ISO 8601. The same command with the same --out resumes a run."
    )

    out: str = changed(RunOptions, "out", "runs/translate")
    data_dir: str | None = option(
        None, "directory with SPLIT.LANGUAGE[.gz]; default: dates", identity=False
    )
    source: str = option("en", "language to translate from")
    target: str = option("de", "language to translate to")
    variant: str = option("raw", '"raw" or for instance "lc.norm.tok" (default: raw)')
    preset: str = option("transformer_tiny", "size of the model")
    num_layers: int | None = option(
        None, "layers on each side, in place of the preset's (default of dates: 2)", at_least=1
    )
    residual: str = option("pre_norm", choices=("pre_norm", "post_norm"))
    dropout: float | None = option(None, "in place of the preset's (default of dates: 0.1)")
    tokenizer: str | None = changed(
        TokenizerOptions, "tokenizer", None, "default: bpe; of dates characters"
    )
    vocabulary_size: int = changed(
        TokenizerOptions, "vocabulary_size", 8000, "largest number of subwords"
    )
    epochs: int | None = changed(
        *(ScheduleOptions, "epochs", None),
        "passes over the training data (default: 48; of dates 5)",
        identity=False,
    )
    steps: int | None = changed(
        *(ScheduleOptions, "steps", None),
        "in place of --epochs: whole epochs up to so many steps",
        identity=False,
    )
    tokens_per_batch: int = option(4096, at_least=1)
    packing: int | None = option(
        None,
        "pack several sentences into rows of so many tokens, in place of rows of one sentence and "
        "batches of like lengths; one shape, as compilers want it",
        at_least=1,
        metavar="TOKENS",
    )
    learning_rate: float | None = changed(
        ScheduleOptions, "learning_rate", None, "peak (default: 0.005; of dates 0.003)"
    )
    warmup_steps: int | None = changed(
        *(ScheduleOptions, "warmup_steps", None),
        "steps up to the peak (default: 2000; of dates 400)",
        at_least=1,
    )
    label_smoothing: float = option(0.1)
    average_last: int | None = option(
        None,
        "epochs whose weights are averaged at the end (default: 10; of dates 1)",
        identity=False,
        at_least=1,
    )
    validate_every: int = option(1, "epochs between validations", identity=False, at_least=1)
    max_length: int | None = option(
        None, "most tokens of a translation (default: 96; of dates 16)", identity=False, at_least=1
    )
    max_source_length: int = option(
        256, "most tokens of a sentence in the data, and of a source of the export", at_least=1
    )
    beams: int | None = option(
        None,
        "of the evaluation and the export; 1 is greedy (default: 5; of dates 1)",
        identity=False,
        at_least=1,
    )
    length_penalty: float = option(0.6, "of the beam search", identity=False)

    def resolve(self):
        return super().resolve().fill(**(_TEXT if self.data_dir else _DATES))

    def check(self):
        super().check()
        if self.packing and self.packing > self.tokens_per_batch:
            raise OptionError(
                "--packing must be at most --tokens-per-batch. "
                f"Received: {self.packing} and {self.tokens_per_batch}."
            )
