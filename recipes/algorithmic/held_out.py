"""What is trained on and what is not: decided by each example itself."""

import numpy as np

# Of ten examples one is never trained on.
ONE_IN = 10
_ROUNDS = 200


def is_held_out(rows):
    """Whether a row (B, width) of small integers from 0 on, ended by -1, is never trained on."""
    hashed = np.zeros(len(rows), np.uint64)
    for column in np.transpose(rows):
        added = np.maximum(column, 0).astype(np.uint64) + np.uint64(1)
        hashed = np.where(column >= 0, _mixed(hashed + added), hashed)
    return hashed % np.uint64(ONE_IN) == 0


def draw(make, number, held_out):
    """So many examples, of those that are held out or of the others.

    Args:
        make: function of a number that draws as many examples: a tuple of arrays, the first of
            which is what `is_held_out` reads.
        number: int.
        held_out: bool.

    Returns:
        The tuple of arrays; they are shorter where there seem to be no such examples.
    """
    found, count = [], 0
    for _ in range(_ROUNDS):
        arrays = make(number)
        right = is_held_out(arrays[0]) == held_out
        found.append([array[right] for array in arrays])
        count += int(right.sum())
        if count >= number:
            break
    return type(arrays)(*(np.concatenate(parts)[:number] for parts in zip(*found, strict=True)))


def _mixed(hashed):
    """The finalizer of splitmix64."""
    hashed = (hashed ^ (hashed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashed = (hashed ^ (hashed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashed ^ (hashed >> np.uint64(31))
