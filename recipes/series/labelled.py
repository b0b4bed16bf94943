"""Series with labels as arrays, held out whole, and their changes in training."""

import numpy as np

from ..common.files import SPLITS


class LabelledSeries:
    """Series of one length, and the indices of their labels.

    `recipes.image.batches` reads it as it reads images.

    Args:
        series: list of `Series`.
        names: list of str, the labels.
        length: int. Steps T. Of a longer series the last are taken; a shorter one begins with
            missing values, NaN.
    """

    def __init__(self, series, names, length):
        indices = {name: index for index, name in enumerate(names)}
        self.labels = np.array([indices[one.label] for one in series], "int32")
        channels = series[0].values.shape[1]
        self.values = np.full((len(series), length, channels), np.nan, "float32")
        for row, one in zip(self.values, series, strict=True):
            own = one.values[-length:]
            row[length - len(own) :] = own

    def __len__(self):
        return len(self.labels)

    def take(self, indices):
        return self.values[np.asarray(indices)]

    def take_labels(self, indices):
        return self.labels[np.asarray(indices)]


def hold_out(series, valid_share, test_share, seed):
    """Return a dict of lists of series by split, `valid` empty for a share of 0.

    Series that begin at different times are held out by their ends: the test has the latest. Those
    that begin together are drawn by the seed, the same share of each label.

    Args:
        series: list of `Series`.
        valid_share: float.
        test_share: float; None for no test.
        seed: int.
    """
    shares = {"valid": valid_share, "test": test_share}
    if test_share is None:
        del shares["test"]
    starts = {one.start for one in series}
    if len(starts) > 1:
        ends = [one.start + len(one.values) for one in series]
        groups = [np.argsort(ends, kind="stable")]
    else:
        order = np.random.default_rng(seed).permutation(len(series))
        labels = sorted({one.label for one in series})
        groups = [[i for i in order if series[i].label == label] for label in labels]
    parts = {split: [] for split in SPLITS if split in {"train", *shares}}
    for group in groups:
        end = len(group)
        for split, share in reversed(shares.items()):
            # At least one of each label is left for training.
            count = min(round(share * len(group)), end - 1)
            parts[split] += sorted(group[end - count : end])
            end -= count
        parts["train"] += sorted(group[:end])
    return {split: [series[i] for i in indices] for split, indices in parts.items()}


class ChangedBatches:
    """Batches whose series are changed at random, so that few series train a model.

    A change depends on the seed, the epoch and the index alone.

    Args:
        batches: such as `ShuffledBatches`, of inputs with `values` and indices of labels.
        options: the recipe's, with `crop`, `scaling`, `jitter`, `mixup` and `seed`.
        deviations: (C,), of the channels.
        num_classes: int.
    """

    def __init__(self, batches, options, deviations, num_classes):
        self._batches, self._options = batches, options
        self._deviations, self._num_classes = deviations, num_classes

    def __len__(self):
        return len(self._batches)

    def batch(self, epoch, index):
        inputs, labels = self._batches.batch(epoch, index)
        rng = np.random.default_rng([self._options.seed, epoch, index])
        values = changed(inputs["values"], self._options, self._deviations, rng)
        targets = np.eye(self._num_classes, dtype="float32")[labels]
        if self._options.mixup:
            values, targets = mixed(values, targets, self._options.mixup, rng)
        return {"values": values}, targets


def changed(values, options, deviations, rng):
    """Return series (B, T, C) that are cut and drawn out, scaled, and noisy."""
    rows, length, channels = values.shape
    if options.crop:
        values = np.stack([_cut(row, rng, options.crop) for row in values])
    if options.scaling:
        values = values * (1 + options.scaling * rng.normal(size=(rows, 1, channels)))
    if options.jitter:
        values = values + options.jitter * deviations * rng.normal(size=(rows, length, channels))
    return values.astype("float32")


def _cut(values, rng, most):
    """Return a random part of a series (T, C), at least 1 - `most` of it, drawn out to T steps."""
    length = len(values)
    share = rng.uniform(1 - most, 1)
    places = (rng.uniform(0, 1 - share) + share * np.linspace(0, 1, length)) * (length - 1)
    before = np.floor(places).astype(int)
    after = np.minimum(before + 1, length - 1)
    weights = (places - before)[:, None]
    return np.where(
        weights > 0, values[before] * (1 - weights) + values[after] * weights, values[before]
    )


def mixed(values, targets, strength, rng):
    """Return series and targets (B, K), each mixed with another by a share of Beta(a, a)."""
    shares = rng.beta(strength, strength, len(values)).astype("float32")
    others = rng.permutation(len(values))
    rows = shares[:, None, None]
    mixture = rows * values + (1 - rows) * values[others]
    shares = shares[:, None]
    return mixture, shares * targets + (1 - shares) * targets[others]
