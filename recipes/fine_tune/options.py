"""Options of the recipe."""

import dataclasses
import os

from keras_attn.hints import download_hint

from ..common import files
from ..common.options import OptionError, RunOptions, ScheduleOptions, SizeOptions, changed, option

TASKS = (
    *("classification", "several_labels", "regression", "tokens", "answers"),
    *("language_model", "translation"),
)
# Options of a new model, without `--model`.
_NEW = ("num_layers", "num_heads", "hidden_dim", "intermediate_dim", "vocabulary_size")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeOptions(
    SizeOptions,
    ScheduleOptions,
    RunOptions,
    out="runs/fine_tune",
    num_layers={"new": 2},
    num_heads={"new": 4},
    hidden_dim={"new": 128},
    intermediate_dim={"new": 512},
    learning_rate={"": 0.0001, "new": 0.001, "lora": 0.001},
):
    """Options of `recipes.fine_tune`."""

    DESCRIPTION = (
        "Trains a model of a folder of Hugging Face or of a .keras file further, on texts with "
        "labels, evaluates it, exports it with its tokenizer and writes a result card. Without "
        "--model the model is new: a bert, a gpt for language_model, or a transformer for "
        "translation. Without --train the data are made offline, from docstrings and dates. The "
        "same command with the same --out resumes a run."
    )

    task: str = option("classification", choices=TASKS)
    model: str | None = option(
        None, "a folder of Hugging Face, or a .keras file (default: a new model)"
    )
    tokenizer: str | None = option(
        None, "default: the folder's, or tokenizer.model beside a .keras file", metavar="FILE"
    )
    from_scratch: bool = option(False, "keep the sizes of --model, and draw its weights anew")
    train: str | None = option(
        None, "a .csv, .tsv or .jsonl, each [.gz]; default: made offline", identity=False
    )
    valid: str | None = option(
        None, "such a file (default: a share of --train)", identity=False, metavar="FILE"
    )
    test: str | None = option(
        None, "such a file, evaluated at the end", identity=False, metavar="FILE"
    )
    valid_share: float = option(
        0.1, "of --train for validation, without --valid", at_least=0, at_most=0.9
    )
    text_column: str = option("text", "name of the column", metavar="NAME")
    second_column: str | None = option(
        None,
        "column of a second text, for pairs (default: none; of answers 'question')",
        metavar="NAME",
    )
    label_column: str = option("label", "name of the column", metavar="NAME")
    max_length: int = option(128, "most tokens of a text; a longer one loses its end", at_least=3)
    vocabulary_size: int | None = option(
        {"new": 2000}, "most subwords of a new model's tokenizer", at_least=1
    )
    pooling: str | None = option(
        None,
        "of the model's outputs (default: the saved classifier's, last of a causal model, or mean)",
        choices=("first", "last", "mean"),
    )
    pattern: str | None = option(
        None, "in place of the model's (default: as it is)", choices=("dense", "local")
    )
    window: int | None = option(None, "of --pattern local, in tokens to each side", at_least=1)
    depth: str | None = option(
        None,
        "the blocks as reversible ones, which train in less memory; for models with norms before "
        "each sublayer, such as GPT-2's (default: as they are)",
        choices=("reversible",),
    )
    dropout: float | None = option(
        None, "in place of the model's (default: as it is)", at_least=0, below=1
    )
    lora: int | None = option(
        None,
        "train LoRA adapters of this rank at the projections of attention and feed-forward layers, "
        "and the new head, and freeze the other weights; the saved model has the adapters merged",
        at_least=1,
        metavar="RANK",
    )
    lora_embedding: bool = option(False, "train the token embeddings beside the adapters of --lora")
    class_weights: str | None = option(
        None, "weigh each class by the inverse of its frequency", choices=("balanced",)
    )
    batch_size: int = option(32, "texts of a step", at_least=1)
    epochs: int = changed(
        ScheduleOptions, "epochs", 10, "passes over the training data", identity=False
    )
    steps: int | None = changed(
        ScheduleOptions,
        "steps",
        None,
        "in place of --epochs: whole epochs up to so many steps, or a part of one",
        identity=False,
    )
    warmup_steps: int | None = changed(
        ScheduleOptions, "warmup_steps", None, "steps up to the peak (default: a tenth of all)"
    )
    patience: int = option(
        3,
        "epochs without a lower validation loss that end the training; the weights are those of "
        "the best epoch in any case",
        at_least=1,
        identity=False,
    )

    @property
    def case(self):
        if not self.model:
            return "new"
        return "lora" if self.lora else ""

    def check_files(self):
        for path in filter(None, (self.train, self.valid, self.test)):
            next(files.blocks(path))
        if self.model and not os.path.exists(self.model):
            raise ValueError(
                "--model must be a folder of Hugging Face or a .keras file, and "
                f"{self.model} does not exist.{download_hint(self.model)}"
            )
        if self.tokenizer and not os.path.isfile(self.tokenizer):
            raise ValueError(f"--tokenizer must be a file, and {self.tokenizer} does not exist.")

    @property
    def pair_column(self):
        """Name of the column of the second text; None for none."""
        return self.second_column or ("question" if self.task == "answers" else None)

    def check(self):
        super().check()
        if self.model:
            self.check_without(_NEW, "--model, which has sizes and a tokenizer of its own")
        else:
            self.check_without(("tokenizer",), "a new model; give --model")
        if not self.train:
            own = ("valid", "test", "second_column", "text_column", "label_column")
            self.check_without(own, "the data that the recipe makes; give --train")
        if self.valid:
            self.check_without(("valid_share",), "--valid, which has the rows for validation")
        if self.task == "language_model":
            self.check_without(("label_column",), "--task language_model, which has no labels")
        if (self.pattern == "local") != (self.window is not None):
            raise OptionError(
                "--pattern local and --window need each other. "
                f"Received: --pattern {self.pattern} and --window {self.window}."
            )
        if self.from_scratch and not self.model:
            raise OptionError("--from-scratch is for --model. Received: no --model.")
        if self.lora and not self.model:
            raise OptionError(f"--lora needs --model. Received: --lora {self.lora} and no --model.")
        if self.lora and self.from_scratch:
            raise OptionError(
                "--lora and --from-scratch exclude each other: adapters need trained weights. "
                f"Received: --lora {self.lora} --from-scratch."
            )
        if self.lora_embedding and not self.lora:
            raise OptionError("--lora-embedding is for --lora. Received: no --lora.")
        if self.task in ("tokens", "language_model", "translation"):
            reason = f"--task {self.task}, which reads one text"
            self.check_without(("second_column", "pooling"), reason)
        if self.task == "answers":
            self.check_without(("pooling",), "--task answers, which reads each token")
        if self.task == "translation":
            reason = "--task translation, whose model has an encoder and a decoder"
            self.check_without(("pattern", "depth"), reason)
        if self.class_weights and self.task != "classification":
            raise OptionError(
                f"--class-weights is for --task classification. Received: --task {self.task}."
            )
