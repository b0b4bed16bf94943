"""
Title: My own time series
Author: keras_attn developers
Date created: 2026/11/29
Last modified: 2026/11/29
Description: Forecast a series with gaps, with bands, and tell kinds of series apart.
"""

import argparse
import pathlib

import keras
import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from keras_attn import losses, models

parser = argparse.ArgumentParser()
parser.add_argument("--out", default=".", type=pathlib.Path, help="folder for the picture")
out = parser.parse_known_args()[0].out
out.mkdir(parents=True, exist_ok=True)
keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)

"""
## A table

We write the load of a power line by the hour, with a day, a week, a slow rise and lost hours. Put
your own table in its place: `genfromtxt` reads an empty field as NaN, a missing value.
"""

hours = np.arange(24 * 80)
day = np.sin(2 * np.pi * hours / 24) + 0.4 * np.sin(4 * np.pi * hours / 24 + 1)
load = 50 + hours / 150 + 9 * day * np.where(hours // 24 % 7 < 5, 1.0, 0.5)
load += 2 * rng.normal(size=len(hours))
for start in rng.integers(len(hours), size=20):
    load[start : start + rng.integers(1, 9)] = np.nan
np.savetxt(out / "load.csv", np.stack([hours, load], axis=1), "%.2f", ",", header="hour,load")
values = np.genfromtxt(out / "load.csv", delimiter=",", skip_header=1, usecols=1)

"""
## Windows, split by time

The model reads eight days and forecasts one. The last 16 days are the test: no target of the
training is among them, while a context of the test may begin before them. Rows that are drawn at
random would put neighbours of each test window into the training.
"""

context, horizon = 192, 24
windows = np.lib.stride_tricks.sliding_window_view(values, context + horizon)[..., None]
x, y = windows[:, :context], windows[:, context:]
last = len(values) - 16 * 24  # the first hour of the test
train, test = slice(0, last - context - horizon + 1), slice(last - context, None)

"""
## A forecast with a band

`patch_tst` scales each window by its own mean and deviation, cuts it into patches and attends to
them. Gaps stay NaN: the model leaves them out, and the loss those among the targets. The three
quantiles are the median and a band that 80 % of the values should fall into.
"""

sizes, levels = {"num_layers": 2, "num_heads": 4, "hidden_dim": 32}, (0.1, 0.5, 0.9)
forecaster = models.patch_tst(
    context, 1, horizon, quantiles=levels, patch_length=24, stride=12, **sizes
)
forecaster.compile(keras.optimizers.Adam(2e-3), losses.Quantile(levels))
forecaster.fit(x[train], y[train], batch_size=64, epochs=12, verbose=2)

low, median, high = np.moveaxis(forecaster.predict(x[test], verbose=0), -1, 0)
same_hour = np.nanmean(np.abs(values[24:last] - values[: last - 24]))
naive = np.nanmean(np.abs(y[test] - x[test][:, -24:])) / same_hour
mase = np.nanmean(np.abs(y[test] - median)) / same_hour
inside = np.mean((low <= y[test]) & (y[test] <= high), where=~np.isnan(y[test]))
print(f"MASE {mase:.3f}; of the same hour of the day before: {naive:.3f}")
print(f"{inside:.0%} of the values are in the band of 80%")

"""
## Kinds of series

Three kinds of machines shake in two directions, for 30 to 64 steps. Shorter series begin with NaN,
so all have one shape. With `num_classes` the same builder makes a classifier.
"""


def shaking(kind):
    turns = np.arange(64) / rng.uniform(7, 13) + rng.uniform()
    waves = np.sin(2 * np.pi * turns), np.sign(np.sin(2 * np.pi * turns)), 2 * (turns % 1) - 1
    series = np.stack([waves[kind], np.roll(waves[kind], 3)], axis=1) * rng.uniform(0.5, 2)
    series[: rng.integers(35)] = np.nan
    return series + rng.normal(0, 0.3, series.shape)


kinds = np.arange(900) % 3
series = np.stack([shaking(kind) for kind in kinds])
classifier = models.patch_tst(64, 2, num_classes=3, patch_length=8, stride=4, **sizes)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
classifier.compile(keras.optimizers.Adam(2e-3), loss, metrics=["accuracy"])
classifier.fit(series[:600], kinds[:600], batch_size=32, epochs=15, verbose=2)
_, accuracy = classifier.evaluate(series[600:], kinds[600:], verbose=0)
flat = np.nan_to_num(series.reshape(900, -1))
linear = LogisticRegression(max_iter=200).fit(flat[:600], kinds[:600])
baseline = linear.score(flat[600:], kinds[600:])
print(f"Accuracy on unseen series: {accuracy:.3f}; of a linear model: {baseline:.3f}")

"""
## A picture

Then `export.saved_model(forecaster, "export")` writes what a server runs.
"""

ahead = np.arange(context, context + horizon)
plt.figure(figsize=(8, 2.6), layout="constrained")
plt.plot(windows[-1, :, 0], color="0.3", label="load")
plt.plot(ahead, median[-1, :, 0], label="median")
plt.fill_between(ahead, low[-1, :, 0], high[-1, :, 0], alpha=0.3, label="80 % band")
plt.xlabel("hours")
plt.legend(loc="upper left", ncols=3)
plt.savefig(out / "my_time_series.png", dpi=80)
