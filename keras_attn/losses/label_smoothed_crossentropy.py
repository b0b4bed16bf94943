"""What a Transformer is trained on."""

import keras
from keras import ops

from keras_attn.backend.replicas import replica_sum
from keras_attn.ops.token_weights import token_losses, token_weights
from keras_attn.registry import register


@register
class LabelSmoothedCrossentropy(keras.losses.Loss):
    """Cross-entropy against a smoothed label, averaged over the real tokens of the whole batch.

        loss = sum_i w_i sum_v -q_i(v) log softmax(z_i)(v) / #{i: y_i != ignore_id},
        q_i(v) = (1 - smoothing) [v = y_i] + smoothing / V

    The labels alone say which tokens are real; the implicit mask that Keras may have left on the
    logits is not used, since it marks what the model read and not what it must predict. Under
    `tf.distribute` the number of real tokens is that of all replicas together, so that replicas
    with different amounts of padding give the gradient of one device; a plain Keras loss divides
    by each replica's own number. A batch without a real token has loss 0 and gradient 0.
    Everything is float32 under any policy. Time and memory are O(B T V), with one softmax.

    Args:
        smoothing: float in [0, 1). The share of probability spread evenly over the vocabulary.
        ignore_id: int. Tokens with this label do not count.
        name: optional name.

    Call arguments:
        y_true: integer tensor (B, T) of labels.
        y_pred: float tensor (B, T, V) of logits; without smoothing also (B, T), the losses of
            tokens as `keras_attn.layers.AdaptiveSoftmax` gives them.
        sample_weight: optional, (B,) or (B, T): weights w_i of the tokens' losses. As elsewhere in
            Keras they leave the number that is divided by alone.

    Returns:
        float32 scalar: under `tf.distribute` this replica's summand of the loss.

    Raises:
        ValueError: if `smoothing` is not in [0, 1), or labels and logits do not fit.

    Example:

    >>> import numpy as np
    >>> from keras_attn.losses import LabelSmoothedCrossentropy
    >>> labels = np.array([[2, 0], [1, 3]])  # one of four tokens is padding
    >>> loss = LabelSmoothedCrossentropy(smoothing=0.1)
    >>> round(float(loss(labels, np.zeros((2, 2, 5)))), 4)  # log 5: nothing is known
    1.6094

    Differs from the paper: none. The smoothed distribution gives the label 1 - smoothing +
    smoothing / V, as `keras.losses.CategoricalCrossentropy` does; Tensor2Tensor spreads the
    smoothing over the other V - 1 words only.

    Reference: Vaswani et al., 2017 (https://arxiv.org/abs/1706.03762), section 5.4;
    Szegedy et al., 2016 (https://arxiv.org/abs/1512.00567), section 7.
    """

    def __init__(self, smoothing=0.1, ignore_id=0, name="label_smoothed_crossentropy"):
        super().__init__(name=name)
        if not 0.0 <= smoothing < 1.0:
            raise ValueError(f"`smoothing` must be in [0, 1). Received: smoothing={smoothing}")
        self.smoothing = smoothing
        self.ignore_id = ignore_id

    def __call__(self, y_true, y_pred, sample_weight=None):
        labels = ops.convert_to_tensor(y_true)
        losses = self.call(labels, y_pred)
        if sample_weight is not None:
            losses = losses * token_weights(labels, self.ignore_id, sample_weight)
        # An average over all replicas: Keras adds the replicas' gradients up and leaves it to the
        # loss to divide; the base class would divide by this replica's own number.
        real_tokens = replica_sum(ops.sum(token_weights(labels, self.ignore_id)))
        return ops.sum(losses) / ops.maximum(real_tokens, 1.0)

    def call(self, y_true, y_pred):
        """The loss of each token (B, T), zero where the label is `ignore_id`."""
        labels, logits = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
        losses = token_losses(labels, logits, self.ignore_id, self.smoothing)
        return ops.where(ops.equal(labels, self.ignore_id), 0.0, losses)

    def get_config(self):
        return {"name": self.name, "smoothing": self.smoothing, "ignore_id": self.ignore_id}
