"""Options of the recipe."""

import dataclasses
import os

from ..common import files
from ..common.model_arguments import ModelArguments
from ..common.options import OptionError, RunOptions, ScheduleOptions, changed, option
from ..text.options import TokenizerOptions

LSTM = "lstm"
# The splits for training; the others are tests, which are only translated.
TRAINING_SPLITS = ("train", "val")
_LANGUAGES = "en", "de"  # by default, of a parallel text
# The default preset of each model that has presets.
_PRESETS = {
    "transformer": "transformer_tiny",
    "universal_transformer": "universal_transformer_tiny",
    "t5": "t5_efficient_tiny",
    "switch_transformer": "switch_base_8",
}
_REGULARISERS = ("subword_dropout", "consistency")
_WITH_RESIDUAL = ("transformer", "universal_transformer")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeOptions(
    TokenizerOptions,
    ModelArguments,
    ScheduleOptions,
    RunOptions,
    out="runs/translate",
    tokenizer={"": "bpe", "dates": "characters"},
):
    """Options of `recipes.translate`."""

    DESCRIPTION = (
        "Trains a model to translate, evaluates it on held-out data, exports it and writes a "
        "result card. Without --data-dir the data are dates in many languages, made offline, to be "
        "written as ISO 8601. The same command with the same --out resumes a run."
    )

    data_dir: str | None = option(
        None,
        "directory with SPLIT[.VARIANT].LANGUAGE[.gz|.zst], or with prepared pairs; default: dates",
        identity=False,
    )
    source: str | None = option(
        None, "language to translate from (default: en; of prepared pairs, their source)"
    )
    target: str | None = option(
        None, "language to translate to (default: de; of prepared pairs, their target)"
    )
    variant: str = option("raw", '"raw" or for instance "lc.norm.tok"')
    model: str | None = option(
        None, "kind of model (default: that of the preset)", choices=(*_PRESETS, LSTM)
    )
    preset: str | None = changed(
        ModelArguments,
        "preset",
        default=None,
        help="a paper's sizes (default: the smallest of the model)",
        identity=True,
    )
    num_layers: int | None = option(
        {"dates": 2}, "layers on each side, in place of the preset's", at_least=1
    )
    residual: str = option("pre_norm", choices=("pre_norm", "post_norm"))
    dropout: float | None = option({"dates": 0.1}, "in place of the preset's", at_least=0, below=1)
    vocabulary_size: int = changed(
        TokenizerOptions, "vocabulary_size", 8000, "largest number of subwords"
    )
    epochs: int | None = changed(
        ScheduleOptions,
        "epochs",
        default={"": 48, "dates": 4},
        help="passes over the training data",
        identity=False,
    )
    steps: int | None = changed(
        ScheduleOptions,
        "steps",
        default=None,
        help="in place of --epochs: whole epochs up to so many steps, or a part of one",
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
        ScheduleOptions, "learning_rate", {"": 0.005, "dates": 0.004}
    )
    warmup_steps: int | None = changed(
        ScheduleOptions,
        "warmup_steps",
        default={"": 2000, "dates": 200},
        help="steps up to the peak",
        at_least=1,
    )
    label_smoothing: float = option(0.1, at_least=0, below=1)
    subword_dropout: float = option(
        0.0,
        "--tokenizer bpe: share of the merges that are left out, anew in each epoch's sentences",
        at_least=0,
        below=1,
        metavar="RATE",
    )
    consistency: float = option(
        0.0,
        "weight of the divergence between two passes of each batch, with other dropout masks",
        at_least=0,
        metavar="WEIGHT",
    )
    average_last: int | None = option(
        {"": 10, "dates": 2},
        "epochs whose weights are averaged at the end",
        identity=False,
        at_least=1,
    )
    validate_every: int = option(1, "epochs between validations", identity=False, at_least=1)
    patience: int | None = option(
        None,
        "validations without a better score that end the training (default: all epochs)",
        identity=False,
        at_least=1,
        metavar="N",
    )
    max_length: int | None = option(
        {"": 96, "dates": 16}, "most tokens of a translation", identity=False, at_least=1
    )
    max_source_length: int = option(
        256, "most tokens of a sentence in the data, and of a source of the export", at_least=1
    )
    beams: int | None = option(
        {"": 5, "dates": 1},
        "of the evaluation and the export; 1 is greedy",
        identity=False,
        at_least=1,
    )
    length_penalty: float = option(0.6, "of the beam search", identity=False, at_least=0)
    constrained: bool = option(
        False,
        "dates: let the evaluation and the export write days of 1950 to 2050 in ISO 8601 only",
        identity=False,
    )

    @property
    def case(self):
        return "" if self.data_dir else "dates"

    @property
    def has_residual(self):
        """True if the model takes the option `residual`."""
        return self.model in _WITH_RESIDUAL

    def resolve(self):
        options = super().resolve()
        if not is_prepared(self.data_dir):
            options = options.fill(source=_LANGUAGES[0], target=_LANGUAGES[1])
        if self.preset is None:
            options = options.fill(model="transformer")
            return options.fill(preset=_PRESETS.get(options.model))
        build, _ = self.find_preset(lambda name, _: name in _PRESETS)
        self.check_model_of(build)
        return options.fill(model=build)

    def identity(self):
        # Of prepared pairs too, since earlier versions had these defaults.
        languages = {"source": self.source or _LANGUAGES[0], "target": self.target or _LANGUAGES[1]}
        identity = {**super().identity(), **languages}
        # None where they are off, so that runs of earlier versions, which lack them, resume.
        return {**identity, **{name: identity[name] or None for name in _REGULARISERS}}

    def check_files(self):
        if self.data_dir and not is_prepared(self.data_dir):
            remedy = " `keras-attn prepare` divides two files of other names into splits."
            for split in TRAINING_SPLITS:
                for name in side_names(split, self.source, self.target, self.variant):
                    files.find(self.data_dir, name, remedy=remedy)

    def check(self):
        super().check()
        self._check_languages()
        self._check_subword_dropout()
        if self.residual != "pre_norm" and not self.has_residual:
            raise OptionError(
                f"--residual is for {' and '.join(_WITH_RESIDUAL)}. "
                f"Received: --residual {self.residual} and --model {self.model}."
            )
        if self.packing and self.model == LSTM:
            raise OptionError(
                "--packing is for Transformers: an LSTM would carry its state into the next pair. "
                f"Received: --packing {self.packing} and --model {LSTM}."
            )
        if self.constrained and self.data_dir:
            raise OptionError(
                "--constrained is for the dates, without --data-dir. "
                f"Received: --data-dir {self.data_dir}."
            )
        if self.packing and self.packing > self.tokens_per_batch:
            raise OptionError(
                "--packing must be at most --tokens-per-batch. "
                f"Received: {self.packing} and {self.tokens_per_batch}."
            )

    def _check_subword_dropout(self):
        """Refuse `--subword-dropout` where the recipe has no merges to leave out."""
        if not self.subword_dropout:
            return
        received = f"Received: --subword-dropout {self.subword_dropout}"
        if is_prepared(self.data_dir):
            raise OptionError(
                "--subword-dropout is for text, and prepared pairs are token ids. "
                f"{received} and --data-dir {self.data_dir}."
            )
        if self.tokenizer != "bpe":
            raise OptionError(
                "--subword-dropout leaves out merges, which only --tokenizer bpe has. "
                f"{received} and --tokenizer {self.tokenizer}."
            )
        if self.packing:
            raise OptionError(
                "--subword-dropout and --packing exclude each other: sentences in more pieces "
                f"would not fit into their rows. {received} and --packing {self.packing}."
            )

    def _check_languages(self):
        """Refuse languages, and a variant, that the data do not have."""
        languages = self.source, self.target
        if not self.data_dir and languages != _LANGUAGES:
            raise OptionError(
                "--source and --target are for --data-dir; the dates of many languages are written "
                f"as ISO 8601. Received: --source {self.source} and --target {self.target}."
            )
        if self.source is not None and self.source == self.target:
            raise OptionError(
                "--source and --target must be two languages. "
                f"Received: --source {self.source} and --target {self.target}."
            )
        has_variants = self.data_dir and not is_prepared(self.data_dir)
        if not has_variants and self.variant != "raw":
            raise OptionError(
                "--variant is for a --data-dir of files SPLIT.VARIANT.LANGUAGE. "
                f"Received: --variant {self.variant}."
            )


def side_names(split, source, target, variant="raw"):
    """Return the names of the two files of a split, but for a compressed one's ending."""
    stem = split if variant == "raw" else f"{split}.{variant}"
    return [f"{stem}.{language}" for language in (source, target)]


def is_prepared(data_dir):
    """Return True for a directory that `recipes.prepare` has written, False for others and None."""
    # `MANIFEST` of `keras_attn.text` is not imported: options are read without Keras.
    return data_dir is not None and os.path.isfile(os.path.join(data_dir, "manifest.json"))
