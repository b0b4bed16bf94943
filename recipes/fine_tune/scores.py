"""Results of predicted classes and numbers, computed by scikit-learn."""

import numpy as np

try:
    from sklearn import metrics
except ImportError as error:
    raise ImportError(
        "Results are computed with scikit-learn: pip install 'keras_attn[recipes]'"
    ) from error


def class_scores(expected, predicted, names, unit):
    """Return accuracy, macro F1 and each class's F1.

    A class that is neither expected nor predicted has no F1, and does not count in the mean.

    Args:
        expected, predicted: int arrays (N,), indices of classes.
        names: list of str, the classes.
        unit: str. Name of the things that have a class.
    """
    share = np.bincount(expected).max() / len(expected)
    present = np.union1d(expected, predicted).tolist()
    each = metrics.f1_score(expected, predicted, labels=present, average=None, zero_division=0)
    by_class = dict(zip(present, map(float, each), strict=True))
    return {
        "value": float(np.mean(expected == predicted)),
        "signature": f"{len(expected)} {unit}; the most frequent label: {share:.4g}",
        "baseline": float(share),
        "macro_f1": float(each.mean()),
        "f1": {name: by_class.get(index) for index, name in enumerate(names)},
    }


def label_scores(expected, predicted, names):
    """Return micro F1, macro F1, each label's F1, and the share of texts with the right labels.

    The baseline is the micro F1 of the most frequent label for every text. A label that no text has
    and that is not predicted has no F1, and does not count in the mean.

    Args:
        expected, predicted: bool arrays (N, K).
        names: list of str, the labels.
    """
    constant = np.zeros_like(expected)
    constant[:, expected.sum(axis=0).argmax()] = True
    baseline = _micro_f1(expected, constant)
    is_present = (expected | predicted).any(axis=0)
    each = [_micro_f1(expected[:, k], predicted[:, k]) for k in range(len(names))]
    by_label = {
        name: f1 if known else None for name, f1, known in zip(names, each, is_present, strict=True)
    }
    return {
        "value": _micro_f1(expected, predicted),
        "signature": f"{len(expected)} texts; the most frequent label for all: {baseline:.4g}",
        "baseline": baseline,
        "macro_f1": float(np.mean([f1 for f1 in by_label.values() if f1 is not None] or [0.0])),
        "exact": float((expected == predicted).all(axis=1).mean()),
        "f1": by_label,
    }


def _micro_f1(expected, predicted):
    """Return 2 TP / (number expected + number predicted), 0 where both are 0."""
    total = expected.sum() + predicted.sum()
    return float(2 * (expected & predicted).sum() / total) if total else 0.0


def number_scores(expected, predicted, constant):
    """Return the mean absolute error, that of a constant prediction, and R squared.

    A test of equal numbers, such as one of one row, has no R squared: it is None.
    """
    has_variance = len(np.unique(expected)) > 1
    baseline = float(np.abs(expected - constant).mean())
    return {
        "value": float(metrics.mean_absolute_error(expected, predicted)),
        "signature": f"{len(expected)} texts; the mean of the training labels: {baseline:.4g}",
        "baseline": baseline,
        "r2": float(metrics.r2_score(expected, predicted)) if has_variance else None,
    }
