"""Base of the metrics of tokens."""

import keras
from keras import ops

from keras_attn.registry import Configurable


class TokenMetric(Configurable, keras.metrics.Mean):
    """Mean over the tokens whose label is not `ignore_class`.

    Sum and number are kept apart over batches and replicas, so that the result is that of all
    tokens seen at once.
    """

    def __init__(self, ignore_class, name, dtype):
        super().__init__(name=name, dtype=dtype)
        self.ignore_class = ignore_class

    def add(self, values, weights, counts=None):
        """Add the weighted sum of `values`, and the sum of `counts`, by default the weights."""
        values, weights = ops.cast(values, self.dtype), ops.cast(weights, self.dtype)
        counts = weights if counts is None else ops.cast(counts, self.dtype)
        self.total.assign_add(ops.sum(values * weights))
        self.count.assign_add(ops.sum(counts))
