"""Contrastive loss of pairs, whose negatives are the other rows of the batch."""

import math

import keras
from keras import ops

from keras_attn.backend.replicas import mean_over_replicas, replica_gather
from keras_attn.compat.replica_losses import ReplicaLosses
from keras_attn.ops.checks import check_choice, check_positive, check_shape
from keras_attn.ops.token_losses import crossentropy
from keras_attn.registry import Composite, register

# kind -> (initial factor s of the cosines, greatest one)
SCALES = {"softmax": (1 / 0.07, 100.0), "sigmoid": (10.0, math.inf)}


@register
class ContrastiveLoss(ReplicaLosses, Composite, keras.layers.Layer):
    """Add the loss of matching each row with its pair among the rows of the batch.

        l_ij = s cos(x_i, y_j) + b,   s = exp(t)

        softmax:  mean over i of -(log softmax_j(l_ij)(i) + log softmax_j(l_ji)(i)) / 2,   b = 0
        sigmoid:  mean over i of sum_j -log sigmoid(l_ij if i = j else -l_ij)

    t is learned, and with "sigmoid" b, from -10 on. The layer ends a model of two encoders: it adds
    the loss by `add_loss`, so `compile` needs none. Under `tf.distribute` the rows of all replicas
    are negatives, with gradients, and two replicas train as one. Everything is float64 if the
    inputs are, else float32. Time O(A B D) and memory O(A B) for B rows of a replica and A of all.

    Use it for encoders of pairs, such as images and captions, or questions and answers.

    Args:
        kind: "softmax", as CLIP, or "sigmoid", as SigLIP.
        scale: float. Initial s; by default 1 / 0.07 for "softmax", where s stays at most 100, and
            10 for "sigmoid".

    Call arguments:
        x: (B, D), vectors of the first encoder.
        y: (B, D), vectors of the second encoder, the pair of x in the same row.

    Returns:
        The logits l (B, A), float32 or, of float64, float64.

    Raises:
        ValueError: if `kind` is unknown, `scale` is not above 0, or x and y differ in shape.

    Example:
        >>> import keras
        >>> from keras_attn.losses import ContrastiveLoss
        >>> images, texts = keras.Input((16,)), keras.Input((16,))
        >>> logits = ContrastiveLoss("sigmoid")(images, keras.layers.Dense(16)(texts))
        >>> model = keras.Model([images, texts], logits)
        >>> model.compile("adam")
        >>> history = model.fit([keras.ops.ones((3, 16))] * 2, verbose=0)

    Differs from the paper: none.

    Reference: [Radford et al., 2021](https://arxiv.org/abs/2103.00020), section 2.3, figure 3;
        [Zhai et al., 2023](https://arxiv.org/abs/2303.15343), section 3.2, algorithm 1.
    """

    weight_axes = {"log_scale": (), "bias": ()}

    def __init__(self, kind="softmax", scale=None, **kwargs):
        super().__init__(**kwargs)
        check_choice(tuple(SCALES), kind=kind)
        scale = SCALES[kind][0] if scale is None else scale
        check_positive(scale=scale)
        self.kind = kind
        self.scale = scale

    def derived_defaults(self):
        return {"scale": SCALES[self.kind][0]}

    def build(self, x_shape, y_shape):
        start = keras.initializers.Constant(math.log(self.scale))
        limit = math.log(SCALES[self.kind][1])
        self.log_scale = self.add_weight(
            (),
            start,
            name="log_scale",
            autocast=False,
            constraint=lambda t: ops.minimum(t, ops.cast(limit, t.dtype)),
        )
        if self.kind == "sigmoid":
            start = keras.initializers.Constant(-10.0)
            self.bias = self.add_weight((), start, name="bias", autocast=False)

    def call(self, x, y):
        check_shape(x, "x", (None, None))
        check_shape(y, "y", tuple(x.shape))
        dtype = keras.backend.result_type(x.dtype, "float32")
        scale = ops.cast(ops.exp(self.log_scale), dtype)
        x, y = scale * _unit(x, dtype), _unit(y, dtype)
        all_y, first = replica_gather(y)
        logits = ops.matmul(x, ops.transpose(all_y))  # (B, A)
        pairs = first + ops.arange(ops.shape(x)[0], dtype="int32")
        if self.kind == "softmax":
            all_x, _ = replica_gather(x)
            by_y = ops.matmul(y, ops.transpose(all_x))
            losses = (crossentropy(pairs, logits) + crossentropy(pairs, by_y)) / 2
        else:
            logits = logits + ops.cast(self.bias, dtype)
            columns = ops.arange(ops.shape(logits)[1], dtype="int32")
            is_pair = ops.equal(ops.expand_dims(pairs, 1), columns)
            losses = ops.sum(ops.softplus(ops.where(is_pair, -logits, logits)), axis=1)
        self.add_loss(mean_over_replicas(losses, ops.sum(ops.ones_like(losses))))
        return logits


def _unit(x, dtype):
    return ops.normalize(ops.cast(x, dtype), axis=-1)
