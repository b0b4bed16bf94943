"""Several values as one number."""

from keras import ops


def join_values(values, num_values):
    """The number whose digits to the base `num_values` are `values` (..., C): int32 (...,)."""
    joined = 0
    for c in range(values.shape[-1]):
        joined = joined * num_values + ops.cast(values[..., c], "int32")
    return joined


def split_number(number, count, num_values):
    """The `count` digits (..., C) of a number (...,) of `join_values`."""
    digits = []
    for _ in range(count):
        digits.append(number % num_values)
        number = number // num_values
    return ops.stack(digits[::-1], axis=-1)
