"""Example inputs of graph functions, on which files of other engines are compared."""

import numpy as np


def example_input(spec, batch, length, num_tokens, random):
    """Return an array for a `TensorSpec`: ids, lengths of rows, noise, or small numbers.

    Args:
        spec: `TensorSpec`. Axis 0 has the size `batch` if it is unknown, others have `length`; of
            "noise", any unknown axis has the size `batch`.
        num_tokens: int. Ids are drawn from 1 to this number.
        random: a generator of NumPy.

    Returns:
        An array. Lengths differ, the first is `length`, and those of prompts are half of them; a
        scalar is 1, but for "batch_size". Series have gaps.
    """
    sizes = [batch, *(length if n is None else n for n in spec.shape[1:])][: spec.shape.rank]
    if spec.name == "noise":
        sizes = [batch if n is None else n for n in spec.shape]
        return random.uniform(0.0, 1.0, sizes).astype("float32")
    if spec.dtype.is_floating:
        numbers = random.normal(0.0, 0.5, sizes).astype(spec.dtype.as_numpy_dtype)
        if spec.name == "values":
            numbers[random.uniform(size=sizes) < 0.2] = np.nan
        return numbers
    if spec.shape.rank == 0:
        return np.array(batch if spec.name == "batch_size" else 1, "int32")
    if spec.shape.rank == 1:
        lengths = (length - np.arange(batch) % length).astype("int32")
        return lengths // 2 if spec.name == "prompt_lengths" else lengths
    if spec.shape.rank == 2:
        return random.integers(1, num_tokens, sizes, "int32", endpoint=True)
    return random.integers(0, 2, sizes, "int32")  # values of images
