"""Trains models of the catalogue on eight simulated devices; run by test_model_parallel.py on JAX.

Prints a line of JSON for each model that is trained: the largest movement of a weight, the largest
difference of one from one device's, by SGD and by Adam, the weights without a gradient that differ
after Adam, and those that the mesh did not divide. Of other models, and of values that are no
models, it prints only the latter. With the argument "all" it trains all models.
"""

import json
import sys
from typing import NamedTuple

import catalogue_models
import jax
import keras
import numpy as np

from keras_attn.distribution import ModelParallel
from keras_attn.distribution import model_parallel as layout

ROWS = 8
SGD_STEPS, SGD_RATE, MOMENTUM = 6, 0.1, 0.5
ADAM_STEPS, ADAM_RATE, BETA_1, BETA_2, EPSILON = 20, 1e-3, 0.9, 0.999, 1e-7
# Below this share of the model's largest gradient, rounding is more than a hundredth of a gradient,
# and Adam makes a full step of it. A key bias has no other gradient than rounding.
ROUNDING = 1e-5
MOST = 1e-5  # that Adam's weights may differ
# Divides weights by both axes; sharded.py by the data axis alone, divided_fit.py by the other.
MESH = 2, 4, True
# Any division computes the same function, if the compiler makes no mistake; so these, which differ
# in the operations that are divided, are trained, and of the others only the rules are tested.
TRAINED = "models.gpt", "models.mixtral", "models.transformer_xl"

SIZES = {"num_heads": 4, "hidden_dim": 16, "intermediate_dim": 16, "dropout": 0.1}


def inputs_of(model):
    two, _ = catalogue_models.inputs_of(model)
    inputs = {}
    for name, x in two.items():
        x = np.concatenate([np.roll(x, shift, axis=1) for shift in range(ROWS // 2)])
        inputs[name] = x
    memory = getattr(model, "memory", None)
    return inputs if memory is None else {**inputs, **model.initial_memory(ROWS)}


class Trained(NamedTuple):
    """Names of weights, their values at first and after training, and sizes of their gradients."""

    names: list
    first: list
    by_sgd: list
    by_adam: list
    sizes: list


def train(name, place):
    keras.distribution.set_distribution(place)
    keras.utils.set_random_seed(3)
    model = catalogue_models.make(name)
    inputs = jax.tree.map(np.asarray, inputs_of(model))
    if place is not None:
        put = lambda x: jax.device_put(x, place.get_data_layout(x.shape).backend_layout)  # noqa: E731
        inputs = jax.tree.map(put, inputs)

    def loss(weights, others, inputs):
        outputs, others, terms = model.stateless_call(
            weights, others, inputs, training=True, return_losses=True
        )
        floats = [
            x for x in jax.tree.leaves(outputs) if jax.numpy.issubdtype(x.dtype, jax.numpy.floating)
        ]
        # The mean of each row weighs the rows alike, wherever they are.
        return sum(((x - 0.3) ** 2).mean() for x in floats) + sum(terms), others

    def step(weights, moments, squares, others, inputs, rule):
        rate, decay, gain, factor, epsilon = rule
        gradients, others = jax.grad(loss, has_aux=True)(weights, others, inputs)
        moments = [decay * m + gain * g for m, g in zip(moments, gradients, strict=True)]
        squares = [
            BETA_2 * v + (1 - BETA_2) * g * g for v, g in zip(squares, gradients, strict=True)
        ]
        state = zip(weights, moments, squares, strict=True)
        weights = [w - rate * m / (factor * v**0.5 + epsilon) for w, m, v in state]
        return weights, moments, squares, others

    first = [v.value for v in model.trainable_variables]
    start = [v.value for v in model.non_trainable_variables]
    shardings = None
    if place is not None:
        of = [w.sharding for w in first]
        shardings = of, of, of, [x.sharding for x in start]
    compiled = jax.jit(step, out_shardings=shardings)

    def after(steps, rule):
        weights, others = first, start
        moments = squares = [0 * w for w in weights]
        for number in range(1, steps + 1):
            given = inputs, np.array(rule(number), "float32")
            weights, moments, squares, others = compiled(weights, moments, squares, others, *given)
        return [np.asarray(w) for w in weights], [np.asarray(v) ** 0.5 for v in squares]

    by_sgd, _ = after(SGD_STEPS, lambda _: (SGD_RATE, MOMENTUM, 1.0, 0.0, 1.0))
    by_adam, sizes = after(ADAM_STEPS, adam)
    return Trained(
        [v.path for v in model.trainable_variables],
        *([np.asarray(w) for w in first], by_sgd, by_adam, sizes),
    )


def adam(number):
    """Return the factors of a step of Adam, the one program of which SGD is a case too."""
    bias_1, bias_2 = 1 - BETA_1**number, 1 - BETA_2**number
    return ADAM_RATE / bias_1, BETA_1, 1 - BETA_1, bias_2**-0.5, EPSILON


def largest(these, those):
    return max(float(abs(a - b).max()) for a, b in zip(these, those, strict=True))


def divided(name):
    """Return what the test compares of a model."""
    alone = train(name, None)
    found = {"moved": largest(alone.first, alone.by_sgd)}
    found["moved_by_adam"] = largest(alone.first, alone.by_adam)
    least = ROUNDING * max(size.max() for size in alone.sizes)
    place = ModelParallel(*MESH)
    ours = train(name, place)
    found["by_sgd"] = largest(ours.by_sgd, alone.by_sgd)
    differences = [abs(a - b) for a, b in zip(ours.by_adam, alone.by_adam, strict=True)]
    is_real = [np.maximum(*x) > least for x in zip(ours.sizes, alone.sizes, strict=True)]
    parts = [*zip(alone.names, differences, is_real, strict=True)]
    found["by_adam"] = max(float((x * real).max()) for _, x, real in parts)
    moved = {path for path, x, real in parts if (x * ~real).max() > MOST}
    found["undivided"] = place.undivided
    jax.clear_caches()
    return {**found, "moved_by_rounding": sorted(moved)}


def rules(name):
    """Return the weights that a mesh does not divide."""
    place = ModelParallel(2, 4)
    keras.distribution.set_distribution(place)
    catalogue_models.make(name)
    return {"undivided": place.undivided}


if __name__ == "__main__":  # pytest imports each module, and must keep its own sizes
    # Compiling takes most of the time.
    jax.config.update("jax_disable_most_optimizations", True)
    # Sizes that eight devices divide, and weights that are large enough.
    layout.LEAST_SHARDED_SIZE, catalogue_models.V = 1, 16
    catalogue_models.SIZES.update(SIZES)
    for name in [*catalogue_models.MODELS, *catalogue_models.BLOCKS]:
        is_trained = name in TRAINED or (name.startswith("models.") and "all" in sys.argv)
        found = divided(name) if is_trained else rules(name)
        print(json.dumps({name: found}), flush=True)
