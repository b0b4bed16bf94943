"""A run that forecasts series."""

import time

import numpy as np

from keras_attn import losses

from ..common.epoch_dataset import EpochDataset
from ..common.optimizer import adam
from ..image.batches import OrderedBatches, ShuffledBatches
from ..predict import compiled
from . import synthetic
from .bands import calibrate
from .baselines import Ridge, last_value, seasonal_naive, with_bands
from .lstm import build_lstm
from .models import build_forecaster
from .pictures import draw_forecasts
from .scores import LEVELS, MEDIAN, forecast_scores
from .series_run import SeriesRun, fit_beside
from .tables import read_series
from .windows import split_by_time

SYNTHETIC = "hourly series with a day, a trend and gaps"


class ForecastRun(SeriesRun):
    """Training and evaluation of a model that forecasts quantiles."""

    curve = "val_loss"

    def __init__(self, options):
        if options.data is None:
            self.name, self.table = SYNTHETIC, synthetic.seasonal_series(options.seed)
        else:
            columns = options.time_column, options.id_column, options.value_columns
            self.name, self.table = options.data, read_series(options.data, *columns)
        longest = max(len(one.values) for one in self.table.series)
        self.sized = sized = options.with_context(self.table.grid.season(), longest)
        self.parts = split_by_time(
            self.table,
            sized.context,
            options.horizon,
            sized.season,
            options.valid_share,
            options.test_share,
            options.test_windows,
        )
        self.splits = self.parts.windows
        super().__init__(options, [self.table])

    def build(self):
        return build_forecaster(self.sized, len(self.table.columns))

    def compile_arguments(self):
        return {"loss": losses.Quantile(LEVELS)}

    def training_data(self):
        return self._training_data(self.options)

    def finish(self):
        """Set the width of the bands."""
        _, targets, _ = self.splits["valid"].all()
        factor = calibrate(self.model, self._forecast(self.model, "valid"), targets)
        print(f"The bands are {factor:.2f} times as wide, by their coverage of the validation.")

    def data_bytes(self):
        return sum(one.values.nbytes for one in self.table.series)

    def evaluate(self):
        """Return the measures on the test, of the model and of the baselines."""
        started = time.monotonic()
        test, quantiles = self.splits["test"], self._forecast(self.model, "test")
        draw_forecasts(self.path("forecasts.png"), self.table, test, quantiles)
        scores = self._scores(quantiles)
        baselines = {name: self._scores(*pair) for name, pair in self._baselines().items()}
        naive = baselines["seasonal naive"]["mase"]
        shown = "none" if naive is None else f"{naive:.4g}"
        return {
            "test": {
                "metric": "mase",
                "value": scores.pop("mase"),
                "signature": f"{len(test)} windows; seasonal naive: {shown}",
                "baseline": naive,
                **scores,
                "baselines": baselines,
                "seconds": round(time.monotonic() - started, 1),
            }
        }

    def summary(self, card):
        rows = {"model": card["results"]["test"], **card["results"]["test"]["baselines"]}
        yield f"{'':16}{'MASE':>9}{'WQL':>9}{'80 % band':>11}"
        for name, row in rows.items():
            mase = row["value" if name == "model" else "mase"]
            numbers = mase, row["weighted_quantile_loss"], row["coverage"]
            cells = ["none" if x is None else f"{x:.4f}" for x in numbers]
            yield f"{name:16}{cells[0]:>9}{cells[1]:>9}{cells[2]:>11}"
        yield f"Picture: {self.path('forecasts.png')}"
        yield from super().summary(card)

    def card_entries(self):
        grid, (valid, test, _) = self.table.grid, self.parts.borders
        return {
            "task": f"{self.name}: {self.options.horizon} steps",
            "series": len(self.table.series),
            "channels": self.table.columns,
            "windows": {split: len(windows) for split, windows in self.splits.items()},
            "begins": {"valid": grid.text(valid), "test": grid.text(test)},
            "season": self.sized.season,
            **self.sizes(),
        }

    def _training_data(self, options):
        size, steps = options.batch_size, options.steps // options.epochs
        train = ShuffledBatches(self.splits["train"], size, steps, options.seed, encode)
        valid = OrderedBatches(self.splits["valid"], size, encode)
        return EpochDataset(train), EpochDataset(valid, free_axes=(0,))

    def _forecast(self, model, split):
        """Return the quantiles (N, H, C, Q) of all windows of a split."""
        predict = compiled(model)
        batches = OrderedBatches(self.splits[split], self.options.batch_size, encode)
        inputs = (batches.batch(0, index)[0] for index in range(len(batches)))
        return np.concatenate([np.asarray(predict(x)) for x in inputs])

    def _scores(self, quantiles, points=None):
        """Return the measures of forecasts of the test."""
        test = self.splits["test"]
        _, targets, _ = test.all()
        series = test.places[:, 0]
        return forecast_scores(quantiles, targets, self.parts.scales, series, points)

    def _baselines(self):
        """Return quantiles (N, H, C, Q) and points (N, H, C) of each baseline on the test."""
        horizon, season = self.options.horizon, self.sized.season
        ridge = Ridge(self.splits["train"], self.splits["valid"])
        functions = {
            "last value": lambda contexts: last_value(contexts, horizon),
            "seasonal naive": lambda contexts: seasonal_naive(contexts, horizon, season),
            "ridge on lags": ridge.forecast,
        }
        valid_contexts, valid_targets, valid_units = self.splits["valid"].all()
        contexts, _, units = self.splits["test"].all()
        forecasts = {}
        for name, function in functions.items():
            points = function(contexts)
            errors = (valid_targets - function(valid_contexts)) / valid_units[:, None]
            forecasts[name] = with_bands(points, units, errors, LEVELS), points
        if self.options.lstm_steps:
            quantiles = self._forecast(self._train_lstm(), "test")
            forecasts["lstm"] = quantiles, quantiles[..., MEDIAN]
        return forecasts

    def _train_lstm(self):
        """Return an LSTM trained as the model is."""
        options = self.sized.of_lstm()
        model = build_lstm(options, len(self.table.columns))
        model.compile(adam(options), **self.compile_arguments())
        fit_beside(model, *self._training_data(options), options.epochs)
        return model


def encode(contexts, labels):
    """Return inputs, targets and weights: errors count in units of their series and channel."""
    targets, units = labels
    weights = np.broadcast_to(1 / units[:, None], targets.shape).astype("float32")
    return {"values": contexts}, targets, weights
