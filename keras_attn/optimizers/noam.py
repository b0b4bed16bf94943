"""Learning rate schedule of the Transformer paper."""

import math

import keras
from keras import ops

from keras_attn.hints import ArgumentHints
from keras_attn.ops.checks import check_positive
from keras_attn.registry import register


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
