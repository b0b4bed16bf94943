"""Frequencies of rotary positions for texts longer than those of training."""

import math

import numpy as np

from keras_attn.ops.checks import check_numbers, check_positive, check_sizes, check_that
from keras_attn.registry import Value, register


def base_frequencies(size, base):
    """Return the angles per position of `size` / 2 pairs, base^(-2i/size), as float64."""
    return np.array([math.exp(-math.log(base) * i / (size / 2)) for i in range(size // 2)])


class RotaryScaling(Value):
    """Base class of changes to the frequencies of `Rotary`.

    Frequencies depend on the settings alone and not on the length of the text, since a cache keeps
    keys as they were turned first.

    Args:
        factor: float. Ratio s of the longest text to the trained length.

    Attributes:
        amplitude: float. Factor of turned queries and of turned keys; logits get its square.
    """

    amplitude = 1.0

    def __init__(self, factor):
        check_numbers(1, factor=factor)
        self.factor = float(factor)

    def _set_amplitude(self, amplitude):
        """Set the amplitude of an argument, whose default depends on the other arguments."""
        if amplitude is None:
            amplitude = self.derived_defaults()["amplitude"]
        check_positive(amplitude=amplitude)
        self.amplitude = float(amplitude)

    def frequencies(self, size, base):
        """Return the angle per position of each of `size` / 2 pairs, float64 (size / 2,)."""
        raise NotImplementedError(f"{type(self).__name__} must define `frequencies`.")


@register
class Interpolation(RotaryScaling):
    """Divide all angles by the factor, so that positions lie between those of training.

        f_i = base^(-2i/R) / s

    Cost: that of `Rotary`.

    Use it for models that are trained a little more on the longer texts.

    Args:
        factor: float. Ratio s of the longest text to the trained length.

    Example:
        >>> from keras_attn import positions
        >>> rotary = positions.Rotary(scaling=positions.Interpolation(4))

    Differs from the paper: none.

    Reference: [Chen et al., 2023](https://arxiv.org/abs/2306.15595), section 2.3, eq. 4.
    """

    def frequencies(self, size, base):
        return base_frequencies(size, base) / self.factor


@register
class NTK(RotaryScaling):
    """Raise the base, so that the slowest pair is s times slower and the fastest as it was.

        f_i = (base s^(R/(R-2)))^(-2i/R)

    Cost: that of `Rotary`.

    Use it for longer texts without more training.

    Args:
        factor: float. Ratio s of the longest text to the trained length.

    Example:
        >>> from keras_attn import positions
        >>> rotary = positions.Rotary(scaling=positions.NTK(4))

    Differs from the paper: none.

    Reference: [Peng et al., 2023](https://arxiv.org/abs/2309.00071), section 3.1, eq. 16.
    """

    def frequencies(self, size, base):
        check_that(size > 2, "above 2", size=size)
        return base_frequencies(size, base * self.factor ** (size / (size - 2)))


@register
class YaRN(RotaryScaling):
    """Divide the angles of slow pairs, keep those of fast pairs, and raise the logits.

        f_i = (1 - r_i) f + r_i f / s,   f = base^(-2i/R)
        r_i = clip((i - low) / (high - low), 0, 1),   low = c(beta_fast),   high = c(beta_slow),
        c(t) = R log(L / (2 pi t)) / (2 log base)

    c(t) is the pair that turns t times in L positions.

    Cost: that of `Rotary`.

    Use it for longer texts with little training.

    Args:
        factor: float. Ratio s of the longest text to the trained length.
        length: int. Trained length L.
        truncate: bool. If True, low and high are whole numbers.
        beta_fast, beta_slow: float. Turns in L positions from which a pair is fast, and up to which
            it is slow.
        amplitude: float. Factor of turned queries and keys; by default 1 + log(s) / 10.

    Raises:
        ValueError: if `factor` is below 1, `length` is no size, or another number is not above 0.

    Example:
        >>> from keras_attn import positions
        >>> rotary = positions.Rotary(scaling=positions.YaRN(4, length=2048))

    Differs from the paper: `truncate`, which the authors' code has.

    Reference: [Peng et al., 2023](https://arxiv.org/abs/2309.00071), sections 3.2 to 3.4.
    """

    def __init__(
        self, factor, length, truncate=True, beta_fast=32.0, beta_slow=1.0, amplitude=None
    ):
        super().__init__(factor)
        check_sizes(length=length)
        check_positive(beta_fast=beta_fast, beta_slow=beta_slow)
        self.length = length
        self.truncate = bool(truncate)
        self.beta_fast = float(beta_fast)
        self.beta_slow = float(beta_slow)
        self._set_amplitude(amplitude)

    def derived_defaults(self):
        return {"amplitude": 1 + 0.1 * math.log(self.factor)}

    def frequencies(self, size, base):
        def pair_of(turns):
            return size * math.log(self.length / (2 * math.pi * turns)) / (2 * math.log(base))

        low, high = pair_of(self.beta_fast), pair_of(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, size - 1)
        high += 0.001 * (high == low)
        slow = np.clip((np.arange(size // 2) - low) / (high - low), 0, 1)
        frequencies = base_frequencies(size, base)
        return (1 - slow) * frequencies + slow * frequencies / self.factor


@register
class Llama3(RotaryScaling):
    """Divide the angles of slow pairs, which turn less than once in the trained length.

        f_i = t_i f + (1 - t_i) f / s,   f = base^(-2i/R)
        t_i = clip((L f / (2 pi) - low) / (high - low), 0, 1)

    Pairs that turn `high` times and more in L positions stay as they are, those between are mixed.

    Cost: that of `Rotary`.

    Use it for checkpoints of Llama 3.1 and later.

    Args:
        factor: float. Ratio s of the longest text to the trained length.
        length: int. Trained length L.
        low, high: float. Turns in L positions below which a pair is slow, and above which it stays
            as it is.

    Raises:
        ValueError: if `factor` is below 1, `length` is no size, `low` is below 0, or `high` is not
            above `low`.

    Example:
        >>> from keras_attn import positions
        >>> rotary = positions.Rotary(500000, scaling=positions.Llama3(8, length=8192))

    Differs from the paper: the paper gives no formula; this is that of the released code.

    Reference: [Llama Team, 2024](https://arxiv.org/abs/2407.21783), section 3.4.2.
    """

    def __init__(self, factor, length, low=1.0, high=4.0):
        super().__init__(factor)
        check_sizes(length=length)
        check_numbers(0, low=low, high=high)
        check_that(high > low, f"above `low`, {low}", high=high)
        self.length = length
        self.low = float(low)
        self.high = float(high)

    def frequencies(self, size, base):
        frequencies = base_frequencies(size, base)
        turns = self.length * frequencies / (2 * math.pi)
        kept = np.clip((turns - self.low) / (self.high - self.low), 0, 1)
        return kept * frequencies + (1 - kept) * frequencies / self.factor


@register
class LongRoPE(RotaryScaling):
    """Divide the angle of each pair by a factor of its own, which a search has found.

        f_i = base^(-2i/R) / factors_i

    The paper has other factors for texts of at most the trained length: give those to a model for
    such texts.

    Cost: that of `Rotary`.

    Use it for checkpoints that come with such factors.

    Args:
        factor: float. Ratio s of the longest text to the trained length.
        length: int. Trained length L.
        factors: floats, one for each pair.
        amplitude: float. Factor of turned queries and keys; by default sqrt(1 + log(s) / log(L)).

    Raises:
        ValueError: if `factor` is below 1, `length` is below 2, or another number is not above 0.

    Example:
        >>> from keras_attn import positions
        >>> scaling = positions.LongRoPE(2, length=4096, factors=[1.0, 1.5, 2.0, 2.0])
        >>> rotary = positions.Rotary(scaling=scaling)

    Differs from the paper: there is no search.

    Reference: [Ding et al., 2024](https://arxiv.org/abs/2402.13753), section 3.
    """

    def __init__(self, factor, length, factors, amplitude=None):
        super().__init__(factor)
        check_sizes(2, length=length)
        check_numbers(**{f"factors[{i}]": x for i, x in enumerate(factors)})
        check_that(min(factors, default=1) > 0, "numbers above 0", factors=factors)
        self.length = length
        self.factors = [float(x) for x in factors]
        self._set_amplitude(amplitude)

    def derived_defaults(self):
        amplitude = math.sqrt(1 + math.log(self.factor) / math.log(self.length))
        return {"amplitude": amplitude}

    def frequencies(self, size, base):
        check_that(len(self.factors) == size // 2, f"{size // 2} numbers", factors=self.factors)
        return base_frequencies(size, base) / np.array(self.factors)
