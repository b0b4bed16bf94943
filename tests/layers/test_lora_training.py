"""LoRA on another backend."""

import pytest
from other_backend import needs_jax, run_on

TRAIN = """
import json
import keras, numpy as np
from keras_attn import depth, layers, residuals


def random(number, shape, scale=1.0):
    return np.random.default_rng(number).normal(0, scale, shape).astype("float32")


data = random(0, (4, 11, 6))


def stack(kind):
    def block(index):
        return layers.TransformerBlock(
            layers.MultiHeadAttention(2, 4), layers.FeedForward(7), residual=residuals.PreNorm()
        )
    if kind == "reversible":
        return depth.Reversible(block, 1)
    return depth.Stack(block, 1, remat=kind == "remat")


def trained(kind, **options):
    # The outputs with adapters, then merged; the weights; are those that moved the adapters?
    x = keras.Input((None, 6))
    model = keras.Model(x, stack(kind)(x))
    model.set_weights([random(i, w.shape, 0.3) for i, w in enumerate(model.weights)])
    layers.add_lora(model, 2, targets=["query", "output"], alpha=4)
    parts = [w for w in model.weights if "lora" in w.name]
    for number, weight in enumerate(parts):
        weight.assign(random(99 + number, weight.shape, 0.3))
    before = model.get_weights()
    model.compile(keras.optimizers.SGD(0.1), "mse", **options)
    model.fit(data, data, batch_size=4, epochs=2, verbose=0)
    weights = model.get_weights()
    moved = [bool((x != y).any()) for x, y in zip(before, weights)]
    is_part = [any(w is part for part in parts) for w in model.weights]
    output = model.predict(data, verbose=0)
    layers.merge_lora(model)
    return output, model.predict(data, verbose=0), weights, moved == is_part
"""
ON_JAX = """
results = {kind: trained(kind) for kind in ("stack", "remat", "reversible")}
errors = [float(abs(x - y).max()) for x, y, _, _ in results.values()]
ways = [results[kind][2] for kind in ("stack", "remat")]
errors += [float(abs(x - y).max()) for x, y in zip(*ways)]
print(json.dumps([max(errors), all(way[3] for way in results.values())]))
"""


@pytest.mark.slow
@needs_jax
def test_adapters_train_on_jax():
    """The merged model and the other kinds of training give the same numbers."""
    error, only_adapters_moved = run_on("jax", TRAIN + ON_JAX)
    assert error < 2e-5 and only_adapters_moved
