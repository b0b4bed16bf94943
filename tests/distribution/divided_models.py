"""Trains models of the catalogue on eight simulated devices; run by test_model_parallel.py on JAX.

Prints a line of JSON for each model that is trained: the largest movement of a weight, the largest
difference of one from one device's, and those that the mesh did not divide. Of other models, and of
values that are no models, it prints only the latter. With the argument "all" it trains all models.
"""

import json
import sys

import catalogue_models
import jax
import keras
import numpy as np

from keras_attn.distribution import ModelParallel
from keras_attn.distribution import model_parallel as layout

ROWS = 8
STEPS, RATE, MOMENTUM = 6, 0.1, 0.5
# Divides weights by both axes; sharded.py by the data axis alone, divided_fit.py by the other.
MESH = 2, 4, True
# Any division computes the same function, if the compiler makes no mistake; so these, which differ
# in the operations that are divided, are trained, and of the others only the rules are tested.
# divided_fit.py trains a `gpt`.
TRAINED = "models.mixtral", "models.transformer_xl"

SIZES = {"num_heads": 4, "hidden_dim": 16, "intermediate_dim": 16, "dropout": 0.1}


def inputs_of(model):
    two, _ = catalogue_models.inputs_of(model)
    inputs = {}
    for name, x in two.items():
        x = np.concatenate([np.roll(x, shift, axis=1) for shift in range(ROWS // 2)])
        inputs[name] = x
    memory = getattr(model, "memory", None)
    return inputs if memory is None else {**inputs, **model.initial_memory(ROWS)}


def train(name, place):
    """Return the weights of a model at first and after training."""
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

    def step(weights, moments, others, inputs):
        gradients, others = jax.grad(loss, has_aux=True)(weights, others, inputs)
        moments = [MOMENTUM * m + g for m, g in zip(moments, gradients, strict=True)]
        weights = [w - RATE * m for w, m in zip(weights, moments, strict=True)]
        return weights, moments, others

    weights = first = [v.value for v in model.trainable_variables]
    others = [v.value for v in model.non_trainable_variables]
    moments = [0 * w for w in weights]
    shardings = None
    if place is not None:
        of = [w.sharding for w in weights]
        shardings = of, of, [x.sharding for x in others]
    compiled = jax.jit(step, out_shardings=shardings)
    for _ in range(STEPS):
        weights, moments, others = compiled(weights, moments, others, inputs)
    return [np.asarray(w) for w in first], [np.asarray(w) for w in weights]


def largest(these, those):
    return max(float(abs(a - b).max()) for a, b in zip(these, those, strict=True))


def divided(name):
    """Return what the test compares of a model."""
    first, alone = train(name, None)
    place = ModelParallel(*MESH)
    _, together = train(name, place)
    jax.clear_caches()
    return {
        "moved": largest(first, alone),
        "difference": largest(together, alone),
        "undivided": place.undivided,
    }


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
        result = divided(name) if is_trained else rules(name)
        print(json.dumps({name: result}), flush=True)
