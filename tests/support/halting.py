"""Adaptive computation time of one unit, in scalars, as the papers and Tensor2Tensor state it."""


def graves(probabilities, max_steps, epsilon):
    """Graves, 2016, eq. 6 to 9: weights of the steps taken, N and R."""
    total, weights = 0.0, []
    for n in range(1, max_steps + 1):
        h = probabilities[n - 1]
        if total + h >= 1 - epsilon or n == max_steps:
            return [*weights, 1 - total], n, 1 - total
        weights.append(h)
        total += h
    raise AssertionError("max_steps must be at least 1")


def tensor2tensor(probabilities, max_steps, epsilon):
    """`universal_transformer_act`: strictly above the threshold, no remainder at the last step."""
    total, weights = 0.0, []
    for n in range(1, max_steps + 1):
        h = probabilities[n - 1]
        if total + h > 1 - epsilon:
            return [*weights, 1 - total], n, 1 - total
        weights.append(h)
        total += h
    return weights, max_steps, 0.0
