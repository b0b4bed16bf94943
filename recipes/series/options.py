"""Options of the recipe."""

import dataclasses
import math

from ..common import files
from ..common.options import OptionError, RunOptions, ScheduleOptions, SizeOptions, changed, option

FORECASTS, CLASSES = "forecasts", "classes"
_OF_FORECASTS = ("horizon", "season", "test_windows")
_OF_CLASSES = ("test", "label_column", "label_smoothing", "jitter", "scaling", "crop", "mixup")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipeOptions(
    SizeOptions,
    ScheduleOptions,
    RunOptions,
    out="runs/series",
    num_layers={"": 2},
    num_heads={"": 4},
    hidden_dim={"": 64},
    intermediate_dim={"": 128},
):
    """Options of `recipes.series`."""

    DESCRIPTION = (
        "Trains a model of time series, which forecasts or classifies them, evaluates it beside "
        "baselines on later times, draws forecasts with their bands, exports it and writes a "
        "result card. Without --data the recipe makes series with a season, a trend and gaps. The "
        "same command with the same --out resumes a run."
    )

    task: str = option(FORECASTS, choices=(FORECASTS, CLASSES))
    data: str | None = option(
        None, "a .csv or .tsv [.gz], a row for each time (default: made offline)", identity=False
    )
    time_column: str = option("time", "numbers, dates or times, in ascending order", metavar="NAME")
    id_column: str | None = option(
        None, "of many series, each with its rows (default: one series)", metavar="NAME"
    )
    value_columns: tuple[str, ...] = option(
        (), "columns of numbers, the channels (default: all others)", metavar="NAME"
    )
    label_column: str | None = option(
        {CLASSES: "label"}, "of --task classes, one label a series", metavar="NAME"
    )
    test: str | None = option(
        None, "of --task classes: such a file, in place of --test-share", identity=False
    )
    valid_share: float = option(
        0.15, "of the time, or of the series with a label, for validation", at_least=0, at_most=0.5
    )
    test_share: float = option(
        0.2, "likewise for the test; forecasts have the latest times", above=0, at_most=0.5
    )
    context: int | None = option(
        None,
        "steps that the model reads (default: of forecasts the larger of four seasons and three "
        "horizons, of classes the longest series)",
        at_least=2,
    )
    horizon: int | None = option({FORECASTS: 24}, "steps of a forecast", at_least=1)
    season: int | None = option(
        None, "steps of a season (default: what the times suggest)", at_least=1
    )
    test_windows: int | None = option(
        {FORECASTS: 2000},
        "most forecasts of the validation and of the test, evenly spaced",
        identity=False,
        at_least=1,
    )
    patch_length: int | None = option(
        None, "steps of a patch (default: an eighth of the context, at most 16)", at_least=1
    )
    stride: int | None = option(None, "steps between patches (default: half a patch)", at_least=1)
    channels: str = option(
        "separate",
        "separate: each channel is a row of its own, as in PatchTST; joined: a patch has the "
        "values of all, of --task classes",
        choices=("separate", "joined"),
    )
    pooling: str = option("flatten", "of the patches", choices=("flatten", "mean", "max"))
    norm: str = option("layer_norm", choices=("layer_norm", "rms_norm", "batch_norm"))
    residual: str = option("pre_norm", choices=("pre_norm", "post_norm"))
    scaler: str = option(
        "std",
        "std: each channel of a series is scaled by its own mean and deviation; fixed, of --task "
        "classes: by those of the training; none: as it is",
        choices=("std", "fixed", "none"),
    )
    head_dropout: float = option(0.2, "of what the outputs are computed from", at_least=0, below=1)
    dropout: float = option(0.2, at_least=0, below=1)
    label_smoothing: float = option(0.0, "of --task classes", at_least=0, below=1)
    jitter: float = option(0.0, "of --task classes: noise, in deviations of a channel", at_least=0)
    scaling: float = option(
        0.0, "of --task classes: deviation of a random factor of each channel", at_least=0
    )
    crop: float = option(
        0.0,
        "of --task classes: most of a series that is cut off, the rest drawn out",
        at_least=0,
        below=1,
    )
    mixup: float = option(
        0.0, "of --task classes: of the beta distribution by which pairs are mixed", at_least=0
    )
    batch_size: int = option(32, "windows, or series, of a step", at_least=1)
    steps: int | None = changed(ScheduleOptions, "steps", 1000)
    lstm_steps: int | None = option(
        None,
        "of an LSTM trained beside the model; 0 for none (default: --steps)",
        identity=False,
        at_least=0,
    )
    patience: int | None = option(
        None,
        "epochs without a lower validation loss that end the training; the weights are those of "
        "the best epoch in any case (default: all)",
        at_least=1,
        identity=False,
    )

    @property
    def case(self):
        return self.task

    def resolve(self):
        options = super().resolve().divide(self.steps)
        return options.fill(
            warmup_steps=options.steps // 10, patience=options.epochs, lstm_steps=options.steps
        )

    def of_lstm(self):
        """Return a copy with the steps of the LSTM."""
        steps = self.lstm_steps
        options = dataclasses.replace(self, warmup_steps=min(self.warmup_steps, steps // 10))
        return options.divide(steps)

    def check(self):
        super().check()
        if self.task == CLASSES:
            self.check_without(_OF_FORECASTS, "--task classes")
            if self.data and not self.id_column:
                raise OptionError("--task classes needs --id-column, the series of each row.")
        else:
            self.check_without(_OF_CLASSES, "--task forecasts")
            for name, value in (("channels", "joined"), ("scaler", "fixed")):
                if getattr(self, name) == value:
                    raise OptionError(
                        f"--{name} {value} is for --task classes. Received: --task forecasts."
                    )
            if self.valid_share == 0:
                raise OptionError(
                    "--valid-share must be above 0 for forecasts, whose bands the validation "
                    "checks. Received: --valid-share 0."
                )
        if not self.data:
            own = ("test", "time_column", "id_column", "value_columns")
            self.check_without(own, "the data that the recipe makes; give --data")
        named = [self.time_column, self.id_column, self.label_column, *self.value_columns]
        named = [name for name in named if name is not None]
        if len({*named}) < len(named):
            raise OptionError(
                f"Each column has one purpose. Received: {', '.join(map(repr, named))}."
            )
        if self.valid_share + self.test_share > 0.8:
            raise OptionError(
                "--valid-share and --test-share must leave a fifth for training. "
                f"Received: {self.valid_share} and {self.test_share}."
            )

    def check_files(self):
        for path in filter(None, (self.data, self.test)):
            next(files.blocks(path))

    def with_context(self, season, longest):
        """Return a copy with the sizes that follow from the data.

        Args:
            season: int. The season that the times suggest.
            longest: int. Steps of the longest series.

        Raises:
            OptionError: if a patch is longer than the context.
        """
        season, context = self.season or season, longest
        if self.task == FORECASTS:
            context = min(max(4 * season, 3 * self.horizon), max(season, longest // 3))
        options = self.fill(season=season, context=max(2, context))
        options = options.fill(patch_length=max(1, min(16, math.ceil(options.context / 8))))
        if options.patch_length > options.context:
            raise OptionError(
                "--patch-length must be at most the context. "
                f"Received: {options.patch_length}, and a context of {options.context} steps."
            )
        return options.fill(stride=max(1, options.patch_length // 2))
