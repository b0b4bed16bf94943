"""Adam, and the learning rate that the Transformer was trained with."""

import math

import keras
from keras import ops

from keras_attn.backend.loop_invariants import loop_invariant, loop_invariants
from keras_attn.compat.keras_optimizers import SumBeforeClipping, adam_moments
from keras_attn.hints import ArgumentHints
from keras_attn.ops.checks import check_positive
from keras_attn.registry import register


@register
class Adam(ArgumentHints, SumBeforeClipping, keras.optimizers.Adam):
    """`keras.optimizers.Adam` that updates each weight by one fused operation on TensorFlow.

        m = b_1 m + (1 - b_1) g,   v = b_2 v + (1 - b_2) g^2
        w = w - lr sqrt(1 - b_2^t) / (1 - b_1^t) m / (sqrt(v) + epsilon)

    Arguments, state and numbers are those of Keras, whose update takes a dozen operations a weight:
    a third of the time to trace a graph, and several reads and writes of the state. Sparse
    gradients, `amsgrad` and other backends use Keras's own update.

    Under a `tf.distribute` strategy it sums the gradients of the replicas before it clips them, so
    `clipnorm`, `global_clipnorm` and `clipvalue` have their meaning on one device; Keras clips the
    gradient of each replica.

    Args:
        As `keras.optimizers.Adam`.

    Example:
        >>> from keras_attn.optimizers import Adam, Noam
        >>> optimizer = Adam(Noam(hidden_dim=512), beta_2=0.98, epsilon=1e-9)

    Differs from the paper: epsilon is added before the bias correction, as Keras has it.

    Reference: [Kingma and Ba, 2014](https://arxiv.org/abs/1412.6980), algorithm 1 and, for the
    order of computation, the end of section 2.
    """

    def apply(self, grads, trainable_variables=None):
        with loop_invariants():
            return super().apply(grads, trainable_variables)

    def update_step(self, gradient, variable, learning_rate):
        is_sparse = hasattr(gradient, "indices")
        if keras.backend.backend() != "tensorflow" or self.amsgrad or is_sparse:
            return super().update_step(gradient, variable, learning_rate)
        import tensorflow as tf

        first_moment, second_moment = adam_moments(self, variable)
        dtype = variable.dtype
        owners = (self, learning_rate)  # a subclass may have a rate for each weight
        factors = loop_invariant(owners, dtype.name, lambda: self._factors(learning_rate, dtype))
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=first_moment.value.handle,
            v=second_moment.value.handle,
            grad=ops.cast(gradient, dtype),
            **factors,
        )

    def _factors(self, learning_rate, dtype):
        """Return the numbers of a step, which all weights of a dtype share, by their names."""
        step = ops.cast(self.iterations + 1, dtype)
        first, second = ops.cast(self.beta_1, dtype), ops.cast(self.beta_2, dtype)
        return {
            "beta1_power": first**step,
            "beta2_power": second**step,
            "lr": ops.cast(learning_rate, dtype),
            "beta1": first,
            "beta2": second,
            "epsilon": ops.cast(self.epsilon, dtype),
        }


@register
class Noam(ArgumentHints, keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate that rises linearly for `warmup_steps` and then falls as 1 / sqrt(step).

        lrate(s) = scale * hidden_dim^-0.5 * min(s^-0.5, s * warmup_steps^-1.5),  s = step + 1

    Keras counts steps from 0 and the paper from 1. The peak, at s = warmup_steps, is
    scale / sqrt(hidden_dim * warmup_steps).

    Args:
        hidden_dim: int. Width of the model D.
        warmup_steps: int. Steps up to the peak.
        scale: float. Multiplies the whole schedule.

    Raises:
        ValueError: if an argument is not positive.

    Example:
        >>> from keras_attn.optimizers import Noam
        >>> round(float(Noam(hidden_dim=512, warmup_steps=4000)(3999)), 6)
        0.000699
        >>> round(float(Noam.from_peak(0.005, warmup_steps=2000)(7999)), 6)
        0.0025

    Differs from the paper: none.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 5.3, equation 3.
    """

    def __init__(self, hidden_dim, warmup_steps=4000, scale=1.0):
        super().__init__()
        self.hidden_dim, self.warmup_steps, self.scale = hidden_dim, warmup_steps, scale
        check_positive(**self.get_config())

    @classmethod
    def from_peak(cls, peak, warmup_steps=4000):
        """Return the schedule whose greatest value is `peak` (a float)."""
        check_positive(peak=peak, warmup_steps=warmup_steps)
        return cls(hidden_dim=1, warmup_steps=warmup_steps, scale=peak * math.sqrt(warmup_steps))

    def __call__(self, step):
        step = ops.cast(step, "float32") + 1.0
        rise_or_fall = ops.minimum(ops.rsqrt(step), step * self.warmup_steps**-1.5)
        return self.scale * self.hidden_dim**-0.5 * rise_or_fall

    def get_config(self):
        return {
            "hidden_dim": self.hidden_dim,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
        }
