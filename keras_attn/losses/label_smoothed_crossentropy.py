"""Cross-entropy with label smoothing that ignores padding."""

import keras
from keras import ops

from keras_attn.ops.checks import check_numbers, check_rates
from keras_attn.ops.ids import narrow
from keras_attn.ops.token_losses import element_weights, reduce_losses, token_losses, token_weights
from keras_attn.registry import Configurable, register


@register
class LabelSmoothedCrossentropy(Configurable, keras.losses.Loss):
    """Cross-entropy against smoothed labels, averaged over the real tokens of the whole batch.

        loss = sum_i w_i (sum_v -q_i(v) log softmax(z_i)(v) + z_loss log(Z_i)^2)
               / #{i: y_i != ignore_class},
        q_i(v) = (1 - label_smoothing) [v = y_i] + label_smoothing / V,   Z_i = sum_v exp(z_i(v))

    Only the labels decide which tokens are real. The implicit mask that Keras may have left on the
    logits is not used: it marks what the model read, not what it must predict. Under
    `tf.distribute` the real tokens of all replicas are counted together, so that replicas with
    different amounts of padding give the gradient of one device; a loss of Keras divides by each
    replica's own number. A batch without a real token has loss 0 and gradient 0. Everything is
    float64 if the logits are, else float32. Time and memory are O(B T V), with one softmax, and a
    second one with `z_loss`, which keeps log(Z) near 0, so that logits do not drift in low
    precision.

    Use it for translation and language models with padded batches.

    Args:
        label_smoothing: float in [0, 1). The share of probability spread evenly over the
            vocabulary.
        ignore_class: int. Tokens with this label do not count; None counts all.
        reduction: as in `keras.losses.Loss`: "sum_over_batch_size" divides by the number of real
            tokens; "mean_with_sample_weight" by the sum of their weights; "sum"; or "none".
        name: optional name.
        z_loss: float. Weight of the squared logarithm of Z; PaLM has 1e-4.
        axis: int. Axis of the classes in the logits: 1 for logits (B, V, T), as those of answers,
            which choose among tokens.

    Call arguments:
        y_true: integer tensor (B, T) of labels.
        y_pred: float tensor (B, T, V) of logits; without smoothing and z-loss also (B, T), the
            losses of tokens as `keras_attn.layers.AdaptiveSoftmax` gives them.
        sample_weight: optional, (B,) or (B, T): weights w_i of the tokens' losses.

    Returns:
        Scalar, under `tf.distribute` this replica's share of the loss; (B, T) without a
        reduction.

    Raises:
        ValueError: if `label_smoothing` is not in [0, 1), `z_loss` is below 0, labels and logits do
            not fit, or, in an eager call, a label is neither `ignore_class` nor in [0, V), also one
            of weight 0. In a graph the loss of such a label is NaN; TensorFlow's CPU may raise an
            error of its own.

    Example:
        >>> import numpy as np
        >>> from keras_attn.losses import LabelSmoothedCrossentropy
        >>> labels = np.array([[2, 0], [1, 3]])  # one of four tokens is padding
        >>> loss = LabelSmoothedCrossentropy(label_smoothing=0.1)
        >>> round(float(loss(labels, np.zeros((2, 2, 5)))), 4)  # log 5: nothing is known
        1.6094

    Differs from the paper: none. The smoothed distribution gives the label 1 - s + s / V with
    s = label_smoothing, as `keras.losses.CategoricalCrossentropy` does; Tensor2Tensor spreads s
    over the other V - 1 words only.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 5.4;
        [Szegedy et al., 2016](https://arxiv.org/abs/1512.00567), section 7; `z_loss`:
        [Chowdhery et al., 2022](https://arxiv.org/abs/2204.02311), section 5.
    """

    def __init__(
        self,
        label_smoothing=0.1,
        ignore_class=0,
        reduction="sum_over_batch_size",
        name="label_smoothed_crossentropy",
        z_loss=0.0,
        axis=-1,
    ):
        super().__init__(name=name, reduction=reduction)
        check_rates(label_smoothing=label_smoothing)
        check_numbers(0, z_loss=z_loss)
        self.label_smoothing = label_smoothing
        self.z_loss = z_loss
        self.ignore_class = ignore_class
        self.axis = axis

    def __call__(self, y_true, y_pred, sample_weight=None):
        losses, real = self._losses(y_true, y_pred)
        if sample_weight is not None:
            sample_weight = element_weights(losses, sample_weight, losses.dtype)
        return reduce_losses(losses, real, sample_weight, self.reduction)

    def call(self, y_true, y_pred):
        """Return the loss of each token (B, T), zero where the label is `ignore_class`."""
        return self._losses(y_true, y_pred)[0]

    def _losses(self, y_true, y_pred):
        """Return the loss of each token, and 1 or 0 for each, as it counts or not."""
        labels, logits = ops.convert_to_tensor(narrow(y_true)), ops.convert_to_tensor(y_pred)
        if self.axis != -1:
            logits = ops.moveaxis(logits, self.axis, -1)
        losses = token_losses(labels, logits, self.ignore_class, self.label_smoothing, self.z_loss)
        real = token_weights(labels, self.ignore_class, dtype=losses.dtype)
        return ops.where(ops.equal(real, 0.0), 0.0, losses), real
