"""R-Drop: two passes of each batch, with other dropout masks, are trained to agree."""

import keras
from keras import ops

from keras_attn.ops.token_losses import reduce_losses, token_weights
from keras_attn.registry import BuildsOptimizer


class ConsistentPasses(BuildsOptimizer, keras.Model):
    """Train a translator on two passes of each batch, and on the divergence between them.

        loss = (CE_1 + CE_2) / 2 + weight mean_t (KL(p1_t || p2_t) + KL(p2_t || p1_t)) / 2

    CE_1 and CE_2 are the compiled loss of each pass, and the mean of the divergences is over the
    real tokens of all replicas. One call computes both passes, as the two halves of a batch of
    twice as many rows, whose dropout masks differ. `fit` the wrapper, and use `.model` afterwards;
    validation is that of the model. In training the metrics are those of the first pass. A step
    takes twice the memory and, on a processor, 2.5 times as long.

    Args:
        model: a model whose output is logits (B, T, V).
        weight: float. Half of the paper's alpha, beside which the losses of both passes are added.
        ignore_class: int. Labels that do not count.

    Reference: Wu et al., 2021 (https://arxiv.org/abs/2106.14448), eq. 2 to 4 and algorithm 1.
    """

    def __init__(self, model, weight, ignore_class=0):
        super().__init__()
        self.model = model
        self.weight, self.ignore_class = weight, ignore_class
        self.built = True

    def call(self, inputs, training=None):
        if training:
            inputs = keras.tree.map_structure(_twice, inputs)
        return self.model(inputs, training=training)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if not training:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        if sample_weight is not None:
            sample_weight = _twice(sample_weight)
        loss = super().compute_loss(x, _twice(y), y_pred, sample_weight, training)
        divergences = symmetric_divergences(*ops.split(y_pred, 2))
        real = token_weights(y, self.ignore_class, dtype=divergences.dtype)
        divergence = reduce_losses(divergences * real, real, None, "sum_over_batch_size")
        return loss + self.weight * ops.cast(divergence, loss.dtype)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        # Validation has as many rows of logits as of labels, and keeps them all.
        return super().compute_metrics(x, y, y_pred[: ops.shape(y)[0]], sample_weight)


def symmetric_divergences(first, second):
    """Return (KL(p || q) + KL(q || p)) / 2 of the softmax p and q of logits (B, T, V): (B, T)."""
    dtype = keras.backend.result_type(first.dtype, "float32")
    first, second = ops.cast(first, dtype), ops.cast(second, dtype)
    # The sum is that of (p - q) (log p - log q). A logarithm is its logit less a constant of the
    # token, and p - q sums to zero, so the logits serve in place of the logarithms.
    return ops.sum((ops.softmax(first) - ops.softmax(second)) * (first - second), axis=-1) / 2


def _twice(x):
    return ops.concatenate([x, x])
