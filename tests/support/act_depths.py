"""Depths of adaptive computation time, and their formula in float64 loops."""

import halting as scalar
import numpy as np
import oracles

from keras_attn.depth import ACT
from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock

B, T, S, N, H, D, F, MOST = 3, 5, 4, 2, 3, 11, 13, 6
X, CONTEXT = oracles.random(B, T, D), oracles.random(B, S, D)
REAL = np.arange(T)[None] < np.array([[5], [3], [4]])
VARIANTS = ["graves", "tensor2tensor", "tensor2tensor_accumulated"]


def block(kind=TransformerBlock, cross=False, score="scaled_dot", pattern="causal", **arguments):
    return kind(
        MultiHeadAttention(N, H, score=score, pattern=pattern),
        FeedForward(F),
        cross_attention=MultiHeadAttention(N, H) if cross else None,
        **arguments,
    )


def built(max_steps=MOST, bias=None, block_arguments=(), **arguments):
    """Return a layer whose positions take different numbers of steps."""
    block_arguments = dict(block_arguments)
    if bias is None:
        sooner = arguments.get("position") and arguments.get("variant", "graves") != "graves"
        bias = -2.5 if sooner else 0.5
    layer = ACT(block(**block_arguments), max_steps, halting_bias=bias, **arguments)
    layer.build(X.shape, *([CONTEXT.shape] if block_arguments.get("cross") else []))
    oracles.scramble(layer, seed=2, scale=0.5)
    layer.halting_unit.set_weights([oracles.random(D, 1, scale=2), np.array([bias])])
    return layer


def oracle(layer, x=X, real=REAL):
    """Compute output, N, R and all halting probabilities by loops in float64."""
    kernel, bias = (oracles.numpy_of(w) for w in layer.halting_unit.weights)
    weights, length = oracles.block_weights(layer.block), x.shape[1]
    allowed = real[:, None, None] & oracles.causal(length, length)
    is_graves = layer.variant == "graves"
    before, states, probabilities = np.asarray(x, "float64"), [], []
    for t in range(1, layer.max_steps + 1):
        read = before.copy()
        if layer.position is not None:
            for i in range(1, length + 1):
                read[:, i - 1] += oracles.sinusoids(i, D) + oracles.sinusoids(t, D)
        after = oracles.block(read, weights, allowed)
        probability = np.zeros(x.shape[:2])
        for place in np.ndindex(x.shape[:2]):
            seen = after[place] if is_graves else read[place]
            probability[place] = 1 / (1 + np.exp(-(seen @ kernel[:, 0] + bias[0])))
            so_far = sum(step[place] for step in probabilities)
            # Who has halted keeps its state, and so does padding.
            if is_graves and (so_far >= 1 - layer.epsilon or not real[place]):
                after[place] = before[place]
        probabilities.append(probability)
        states.append(after)
        before = after
    rule = scalar.graves if is_graves else scalar.tensor2tensor
    output, taken, remainder = np.zeros(x.shape), np.zeros(x.shape[:2]), np.zeros(x.shape[:2])
    for place in np.ndindex(x.shape[:2]):
        if real[place]:
            h = [step[place] for step in probabilities]
            means, taken[place], remainder[place] = rule(h, layer.max_steps, layer.epsilon)
            for weight, state in zip(means, states, strict=False):
                if layer.variant == "tensor2tensor":
                    output[place] *= 1 - weight
                output[place] += weight * state[place]
    return output, taken, remainder, probabilities
