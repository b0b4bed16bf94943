"""Trains models of the catalogue on eight simulated devices; run by test_model_parallel.py on JAX.

Prints a line of JSON for each model: the largest movement of a weight, the largest difference of
one from one device's on each mesh, and the weights that the first mesh did not divide. Of values
that are no models it prints only the latter.
"""

import json

import catalogue_models
import jax
import keras
import numpy as np

from keras_attn.distribution import ModelParallel, layout

ROWS, STEPS, RATE, MOMENTUM = 8, 6, 0.1, 0.5
MESHES = {"tensor": (2, 4), "both": (2, 4, True), "zero": (8, 1, True)}

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
        return [w - RATE * m for w, m in zip(weights, moments, strict=True)], moments, others

    weights = [v.value for v in model.trainable_variables]
    others = [v.value for v in model.non_trainable_variables]
    first, moments = list(map(np.asarray, weights)), [0 * w for w in weights]
    shardings = None
    if place is not None:
        of = [w.sharding for w in weights]
        shardings = of, of, [x.sharding for x in others]
    compiled = jax.jit(step, out_shardings=shardings)
    for _ in range(STEPS):
        weights, moments, others = compiled(weights, moments, others, inputs)
    return first, list(map(np.asarray, weights))


def largest(these, those):
    return max(float(abs(a - b).max()) for a, b in zip(these, those, strict=True))


def divided(name):
    """Return what the test compares of a model."""
    first, alone = train(name, None)
    found = {"moved": largest(first, alone)}
    for mesh, arguments in MESHES.items():
        place = ModelParallel(*arguments)
        found[mesh] = largest(train(name, place)[1], alone)
        found.setdefault("undivided", place.undivided)
    jax.clear_caches()
    return found


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
        found = divided(name) if name.startswith("models.") else rules(name)
        print(json.dumps({name: found}), flush=True)
