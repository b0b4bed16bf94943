"""Proximal policy optimisation."""

import keras
from keras import ops

from keras_attn.backend.replicas import num_replicas
from keras_attn.registry import BuildsOptimizer


class ProximalPolicy(BuildsOptimizer, keras.Model):
    """Train an agent's model by proximal policy optimisation.

        loss = -mean min(w A, clip(w, 1 - c, 1 + c) A) + value_weight mean (V - R)^2 / 2
               - entropy_weight mean entropy,   w = p(a) / p_then(a)

    Args:
        model: of an `Agent`.
        clip: float. c.
        value_weight, entropy_weight: floats.

    Reference: Schulman et al., 2017 (https://arxiv.org/abs/1707.06347), eq. 7 and 9.
    """

    def __init__(self, model, clip=0.2, value_weight=0.5, entropy_weight=0.01):
        super().__init__()
        self.model = model
        self.clip = clip
        self.value_weight, self.entropy_weight = value_weight, entropy_weight
        self.entropy = keras.metrics.Mean(name="entropy")
        self.built = True

    def call(self, inputs, training=None):
        return self.model(inputs, training=training)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        log_probs = ops.log_softmax(y_pred["policy"])  # (B, T, A)
        entropy = ops.mean(-ops.sum(ops.exp(log_probs) * log_probs, axis=-1))
        self.entropy.update_state(entropy)
        chosen = ops.take_along_axis(log_probs, y["actions"][..., None], axis=-1)[..., 0]
        ratio, advantages = ops.exp(chosen - y["log_probs"]), y["advantages"]
        near = ops.clip(ratio, 1 - self.clip, 1 + self.clip)
        gain = ops.mean(ops.minimum(ratio * advantages, near * advantages))
        error = ops.mean(ops.square(y_pred["value"][..., 0] - y["returns"])) / 2
        loss = -gain + self.value_weight * error - self.entropy_weight * entropy
        # The mean over the replicas, whose gradients are summed.
        return (loss + sum(self.losses)) / num_replicas()
