"""Options of the recipe."""

import dataclasses
import math
import os

from ..model_arguments import ModelArguments
from ..options import OptionError, RunOptions, ScheduleOptions, SizeOptions, changed, option
from .shapes import DATASETS, MODELS, PATTERNS, pattern_sizes

# Sizes without a preset.
SIZES = {
    "num_layers": 6,
    "num_heads": 4,
    "hidden_dim": 160,
    "intermediate_dim": 640,
    "dropout": 0.2,
}
_SHAPE = {"metavar": ("ROWS", "COLUMNS")}
_DEFAULT = "default: {}, or the preset's"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeOptions(ModelArguments, SizeOptions, ScheduleOptions, RunOptions):
    """Options of `recipes.image`."""

    DESCRIPTION = (
        "Trains a model of images, evaluates it on held-out ones in bits per dimension, draws "
        "samples, exports it and writes a result card. By default the images are scikit-learn's "
        "digits. The same command with the same --out resumes a run."
    )

    out: str = changed(RunOptions, "out", "runs/image")
    dataset: str = option("digits", choices=tuple(DATASETS))
    data_dir: str | None = option(
        None, "directory with CIFAR-10's *.bin, or ImageNet's train*.np[yz], val*"
    )
    model: str = option("image_transformer", choices=MODELS)
    preset: str | None = option(
        None, "a paper's sizes, in place of --model and its sizes", identity=False
    )
    num_layers: int | None = changed(SizeOptions, "num_layers", None, _DEFAULT.format(6))
    num_heads: int | None = changed(SizeOptions, "num_heads", None, _DEFAULT.format(4))
    hidden_dim: int | None = changed(SizeOptions, "hidden_dim", None, _DEFAULT.format(160))
    intermediate_dim: int | None = changed(
        SizeOptions, "intermediate_dim", None, _DEFAULT.format(640)
    )
    dropout: float | None = option(None, _DEFAULT.format(0.2), at_least=0)
    pattern: str | None = option(
        None,
        "earlier tokens that a token attends to; dense: all "
        "(default: block_local_1d; of sparse_transformer strided)",
        choices=PATTERNS,
    )
    block_length: int | None = option(None, "of block_local_1d, in tokens", at_least=1)
    lookback: int | None = option(
        None, "of block_local_1d (default: the block's length)", at_least=0
    )
    query_shape: tuple[int, int] | None = option(None, "of block_local_2d: a block", **_SHAPE)
    flange: tuple[int, int] | None = option(
        None, "of block_local_2d: the margin above and at each side", **_SHAPE
    )
    stride: int | None = option(
        None, "of strided and fixed (default: the tokens of a row)", at_least=1
    )
    summary: int | None = option(
        None, "of fixed, in tokens (default: a quarter of the stride)", at_least=1
    )
    likelihood: str | None = option(
        None,
        "of a value: a softmax, or of a pixel: a mixture of logistics (default: categorical)",
        choices=("categorical", "logistics"),
    )
    num_mixtures: int | None = option(None, "of logistics (default: 10)", at_least=1)
    batch_size: int = option(32, "images of a step", at_least=1)
    train_images: int = option(60_000, "images to train on", identity=False, at_least=1)
    steps: int | None = changed(ScheduleOptions, "steps", None, "in place of --train-images")
    warmup_steps: int | None = changed(
        ScheduleOptions, "warmup_steps", None, "steps up to the peak (default: a tenth of all)"
    )
    valid_images: int = option(500, "most images of a validation", identity=False, at_least=1)
    test_images: int | None = option(
        None, "most images of the test (default: all)", identity=False, at_least=1
    )
    samples: int = option(64, "images to draw", identity=False, at_least=1)
    temperature: float = option(1.0, "of the samples", identity=False, above=0)

    def resolve(self):
        options = self._with_preset() if self.preset else self
        steps = options.steps or math.ceil(options.train_images / options.batch_size)
        options = super(RecipeOptions, options).resolve().divide(steps)
        sparse = options.model == "sparse_transformer"
        options = options.fill(
            **SIZES,
            pattern="strided" if sparse else "block_local_1d",
            likelihood="categorical",
            num_mixtures=10,
            warmup_steps=options.steps // 10,
        )
        given = options.block_length, options.stride
        kind = DATASETS[options.dataset]
        return options.fill(**pattern_sizes(kind, options.likelihood, *given))

    def check(self):
        super().check()
        if (self.dataset == "digits") != (self.data_dir is None):
            raise OptionError(
                "--data-dir is where the files of cifar10 and imagenet32 are. "
                f"Received: --dataset {self.dataset} and --data-dir {self.data_dir}."
            )
        if self.model == "sparse_transformer":
            if self.likelihood == "logistics":
                raise OptionError("--likelihood logistics is for image_transformer.")
            if self.pattern.startswith("block_local"):
                raise OptionError(
                    "--pattern must be dense, strided or fixed for sparse_transformer. "
                    f"Received: --pattern {self.pattern}."
                )
        if self.likelihood == "logistics" and self.temperature != 1:
            raise OptionError("--temperature is for --likelihood categorical.")

    def identity(self):
        """Spell the data's directory in one way."""
        return {**super().identity(), "data_dir": self.data_dir and os.path.realpath(self.data_dir)}

    def _with_preset(self):
        """Return a copy with the preset's model, sizes and pattern where none are given."""
        from keras_attn.models import PRESETS  # not for --help, which answers at once

        known = [
            name
            for name, (build, sizes) in PRESETS.items()
            if build.__name__ in MODELS and "summary" not in sizes  # which is for text
        ]
        if self.preset not in known:
            raise OptionError(
                f"--preset must be one of {', '.join(known)}. Received: {self.preset}."
            )
        build, preset = PRESETS[self.preset]
        found = {n: v for n, v in preset.items() if n not in ("vocabulary_size", "image_shape")}
        pattern = found.pop("pattern", None)
        if pattern is not None:
            found["pattern"] = "block_local_2d"
            found["query_shape"], found["flange"] = pattern.query_shape, pattern.flange
        if "num_mixtures" in found:
            found["likelihood"] = "logistics"
        own = {name: value for name, value in found.items() if hasattr(self, name)}
        others = [f"{name}={value!r}" for name, value in found.items() if name not in own]
        options = dataclasses.replace(self, model=build.__name__, more=(*others, *self.more))
        return options.fill(**own)
