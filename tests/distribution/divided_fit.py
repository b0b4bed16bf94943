"""Trains a divided `gpt` by `fit` on eight simulated devices, predicts, generates, saves and loads;
run by test_model_parallel.py on JAX. Argument: a directory. Prints what the test compares.
"""

import json
import re
import sys
import warnings

import jax
import keras
import numpy as np

from keras_attn.distribution import ModelParallel, strategy
from keras_attn.generation import generate
from keras_attn.losses import LabelSmoothedCrossentropy
from keras_attn.models import gpt
from keras_attn.optimizers import Adam

V, T, STEPS = 128, 16, 20
IDS = np.random.default_rng(0).integers(1, V, (8 * STEPS, T + 1))


def made(place):
    keras.distribution.set_distribution(place)
    keras.utils.set_random_seed(3)
    model = gpt(V, 1, 4, 64, 256, dropout=0.1, max_length=T)
    model.compile(Adam(0.001, global_clipnorm=1.0), LabelSmoothedCrossentropy(0.1))
    return model


def trained(place):
    model = made(place)
    inputs = {"token_ids": IDS[:, :-1]}
    model.fit(inputs, IDS[:, 1:], batch_size=8, shuffle=False, verbose=0)
    weights = [np.asarray(v) for v in model.trainable_variables]
    predicted = model.predict({"token_ids": IDS[:11, :-1]}, batch_size=5, verbose=0)
    written = [np.asarray(x) for x in generate(model, IDS[:3, :4], "greedy", max_length=6)]
    return model, weights, predicted, written


def share(model):
    """The bytes of weights and optimizer on the fullest device, of all bytes."""
    variables = [*model.variables, *model.optimizer.variables]
    sizes = dict.fromkeys(jax.devices(), 0)
    for variable in variables:
        for shard in variable.value.addressable_shards:
            sizes[shard.device] += shard.data.nbytes
    return max(sizes.values()) / sum(v.value.nbytes for v in variables)


def saved(model, place, path):
    """Save a model, load it on the mesh and on one device, and return what a test compares."""
    model.save(path)
    loaded = keras.saving.load_model(path)
    keras.distribution.set_distribution(None)
    whole = keras.saving.load_model(path)
    keras.distribution.set_distribution(place)
    return {
        "share": share(model),
        "loaded_share": share(loaded),
        "undivided": place.undivided,
        "loaded": all(
            np.array_equal(a, b)
            for one in (loaded, whole)
            for a, b in zip(one.get_weights(), model.get_weights(), strict=True)
        ),
    }


def collectives(model):
    """The kinds of collectives in a compiled step of SGD."""

    def loss(weights, others, ids):
        logits, others = model.stateless_call(weights, others, {"token_ids": ids}, training=True)
        return keras.ops.mean(keras.losses.sparse_categorical_crossentropy(ids, logits, True))

    place = keras.distribution.distribution()
    ids = jax.device_put(IDS[:8, :-1], place.get_data_layout((8, T)).backend_layout)
    weights = [v.value for v in model.trainable_variables]
    others = [v.value for v in model.non_trainable_variables]
    step = jax.jit(jax.grad(loss), out_shardings=[w.sharding for w in weights])
    program = step.lower(weights, others, ids).compile().as_text()
    kinds = "all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter"
    return sorted(set(re.findall(rf" ({kinds})(?:-start)?[(]", program)))


def error_of(function, *arguments, **keywords):
    try:
        function(*arguments, **keywords)
    except ValueError as error:
        return str(error)
    return None


def warnings_of(*layers):
    """The warnings of a scope in which a model of layers is built."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with strategy("model_parallel", data=2, model=4).scope():
            x = keras.Input((8,))
            for layer in layers:
                x = layer(x)
    return [str(w.message) for w in caught if "whole" in str(w.message)]


class Named(keras.layers.Dense):
    weight_axes = {"kernel": (None, "model"), "bias": ("model",)}


def close(a, b):
    return a.shape == b.shape and np.allclose(a, b, atol=1e-5)


def main(directory):
    _, weights, predicted, written = trained(None)
    tensor, zero = ModelParallel(2, 4), ModelParallel(8, 1, True)
    model, divided, outputs, ids = trained(tensor)
    results = {
        "trained": {
            "difference": max(abs(a - b).max() for a, b in zip(divided, weights, strict=True)),
            "outputs": abs(outputs - predicted).max(),
            "rows": len(outputs),
            "same_ids": all(map(close, ids, written)),
        },
        "collectives": collectives(model),
        "2": saved(model, tensor, f"{directory}/2.keras"),
    }
    model = made(zero)
    model.optimizer.build(model.trainable_variables)
    results["8"] = saved(model, zero, f"{directory}/8.keras")
    results["errors"] = [
        error_of(ModelParallel, 2, 3),
        error_of(ModelParallel, 0, 8),
        error_of(strategy, "none", data=2),
        error_of(lambda: keras.Sequential([keras.Input((8,)), Wrong(4)])),
    ]
    results["warnings"] = [
        warnings_of(keras.layers.Dense(4, name="mine")),
        warnings_of(Named(4), Named(6, name="six")),
        warnings_of(Named(4)),
    ]
    print(json.dumps(results, default=float))


class Wrong(keras.layers.Dense):
    weight_axes = {"kernel": (None, None, "model"), "bias": ()}


if __name__ == "__main__":
    main(*sys.argv[1:])
