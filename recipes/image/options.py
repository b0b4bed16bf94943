"""Options of the recipe."""

import dataclasses
import math

from ..common.model_arguments import ModelArguments
from ..common.options import OptionError, RunOptions, ScheduleOptions, SizeOptions, changed, option
from .shapes import CLASSIFIERS, DATASETS, ENLARGER, MODELS, PATTERNS, pattern_sizes

_SHAPE = {"metavar": ("ROWS", "COLUMNS")}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeOptions(
    ModelArguments,
    SizeOptions,
    ScheduleOptions,
    RunOptions,
    out="runs/image",
    num_layers={"": 6},
    num_heads={"": 4},
    hidden_dim={"": 160},
    intermediate_dim={"": 640},
):
    """Options of `recipes.image`."""

    DESCRIPTION = (
        "Trains a model of images, evaluates it on held-out ones in bits per dimension, draws "
        "samples, exports it and writes a result card; vit and perceiver classify images and are "
        "evaluated by their accuracy. By default the images are scikit-learn's digits. The same "
        "command with the same --out resumes a run."
    )

    dataset: str = option("digits", choices=tuple(DATASETS))
    data_dir: str | None = option(
        None, "directory with CIFAR-10's *.bin, or ImageNet's train*.np[yz], val*", identity=False
    )
    model: str | None = option(
        None, "default: image_transformer, or that of the preset", choices=MODELS
    )
    dropout: float | None = option({"": 0.2}, at_least=0, below=1)
    pattern: str | None = option(
        {
            "": "block_local_1d",
            "sparse_transformer": "strided",
            **dict.fromkeys(CLASSIFIERS, "dense"),
        },
        "earlier tokens that a token attends to; dense: all",
        choices=PATTERNS,
    )
    block_length: int | None = option(None, "of block_local_1d, in tokens", at_least=1)
    lookback: int | None = option(
        None, "of block_local_1d (default: the block's length)", at_least=0
    )
    query_shape: tuple[int, int] | None = option(
        None, "of block_local_2d: a block", at_least=1, **_SHAPE
    )
    flange: tuple[int, int] | None = option(
        None, "of block_local_2d: the margin above and at each side", at_least=0, **_SHAPE
    )
    stride: int | None = option(
        None, "of strided and fixed (default: the tokens of a row)", at_least=1
    )
    summary: int | None = option(
        None, "of fixed, in tokens (default: a quarter of the stride)", at_least=1
    )
    likelihood: str | None = option(
        {"": "categorical"},
        "categorical: a softmax of each value; logistics: a mixture of logistics of each pixel",
        choices=("categorical", "logistics"),
    )
    num_mixtures: int | None = option({"": 10}, "of logistics", at_least=1)
    patch_size: int | None = option(
        None,
        "rows and columns of a patch of vit (default: a quarter of the image's) and of perceiver "
        "(default: 1, a pixel)",
        at_least=1,
    )
    factor: int | None = option(
        None,
        f"of {ENLARGER}: rows and columns of an image for each of the small image that it reads "
        "(default: 2 for digits, 4 for the others)",
        at_least=2,
    )
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

    @property
    def case(self):
        return self.model

    def resolve(self):
        options = self._with_preset() if self.preset else self.fill(model="image_transformer")
        return options._with_sizes()

    def _with_sizes(self):
        """Return a copy with the sizes that follow from the model and the data."""
        steps = self.steps or math.ceil(self.train_images / self.batch_size)
        options = super().resolve().divide(steps)
        dataset, likelihood = DATASETS[options.dataset], options.likelihood
        sizes = pattern_sizes(dataset, likelihood, options.block_length, options.stride)
        height = DATASETS[options.dataset].image_shape[0]
        patch_size = 1 if options.model == "perceiver" else height // 4
        sizes |= {"patch_size": patch_size, "factor": max(2, height // 8)}
        return options.fill(**sizes, warmup_steps=options.steps // 10)

    def check(self):
        super().check()
        if (self.dataset == "digits") != (self.data_dir is None):
            raise OptionError(
                "--data-dir is where the files of cifar10 and imagenet32 are. "
                f"Received: --dataset {self.dataset} and --data-dir {self.data_dir}."
            )
        if self.likelihood == "logistics" and self.model in ("sparse_transformer", ENLARGER):
            raise OptionError(
                f"--likelihood logistics is for image_transformer. Received: --model {self.model}."
            )
        if self.model == "sparse_transformer":
            if self.pattern.startswith("block_local"):
                raise OptionError(
                    "--pattern must be dense, strided or fixed for sparse_transformer. "
                    f"Received: --pattern {self.pattern}."
                )
        if self.model in CLASSIFIERS:
            self._check_classifier()
        if self.model == ENLARGER:
            self._check_enlarger()
        if self.likelihood == "logistics" and self.temperature != 1:
            raise OptionError("--temperature is for --likelihood categorical.")

    def _check_classifier(self):
        kind = DATASETS[self.dataset]
        if kind.num_classes is None:
            raise OptionError(
                f"--dataset must have classes for {self.model}. Received: --dataset {self.dataset}."
            )
        if self.likelihood != "categorical" or self.pattern != "dense":
            raise OptionError(
                "--likelihood and --pattern are for models that draw images. "
                f"Received: --likelihood {self.likelihood} and --pattern {self.pattern}."
            )
        if any(length % self.patch_size for length in kind.image_shape[:2]):
            raise OptionError(
                f"--patch-size must divide the images, {kind.image_shape[:2]}. "
                f"Received: --patch-size {self.patch_size}."
            )

    def _check_enlarger(self):
        shape = DATASETS[self.dataset].image_shape[:2]
        if any(length % self.factor for length in shape):
            raise OptionError(
                f"--factor must divide the images, {shape}. Received: --factor {self.factor}."
            )

    def check_files(self):
        if self.data_dir:
            from .data import find_files  # not for --help, which answers at once

            find_files(self.dataset, self.data_dir)

    def _with_preset(self):
        """Return a copy with the preset's model, sizes and pattern where none are given."""
        # Presets with a summary, or with latents, are for text.
        text_arguments = {"summary", "num_latents"}
        build, preset = self.find_preset(
            lambda name, x: name in MODELS and not text_arguments & x.keys()
        )
        self.check_model_of(build)
        values = {n: v for n, v in preset.items() if n not in ("vocabulary_size", "image_shape")}
        pattern = values.pop("pattern", None)
        if pattern is not None:
            values["pattern"] = "block_local_2d"
            for name in ("query_shape", "flange"):
                values[name] = pattern.keywords[name]
        if "num_mixtures" in values:
            values["likelihood"] = "logistics"
        own = {name: value for name, value in values.items() if hasattr(self, name)}
        others = [f"{name}={value!r}" for name, value in values.items() if name not in own]
        options = dataclasses.replace(self, model=build, more=(*others, *self.more))
        return options.fill(**own)
