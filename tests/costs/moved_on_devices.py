"""Compiles training steps on eight simulated devices; run by test_devices.py on JAX.

Prints a line of JSON for each model and mesh: the bytes of the weights on a device, those that the
collectives of the compiled step return to it by kind, and what `explain` calculates.
"""

import collections
import dataclasses
import json
import math
import re

import jax
import keras
import numpy as np

import keras_attn
from keras_attn.distribution import ModelParallel

V, D, ROWS, LENGTH = 512, 64, 16, 32
SIZES = {"num_heads": 8, "hidden_dim": D, "intermediate_dim": 256}
MODELS = {
    "gpt": lambda: keras_attn.models.gpt(V, 2, **SIZES, max_length=LENGTH),
    "transformer": lambda: keras_attn.models.transformer(V, 1, **SIZES),
    "llama": lambda: keras_attn.models.llama(V, 1, **SIZES, num_key_value_heads=4),
}
BOTH_AXES = (2, 4, True)
MESHES = {
    "gpt": [(8, 1, True), (2, 4, False), BOTH_AXES],
    "transformer": [BOTH_AXES],
    "llama": [BOTH_AXES],
}
ITEM = {"f32": 4, "bf16": 2, "s32": 4, "u32": 4, "pred": 1}
KINDS = "all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter"


def compiled(model, place):
    """Return the text of the compiled gradients of a loss by all weights."""

    def loss(weights, others, inputs, labels):
        logits, _ = model.stateless_call(weights, others, inputs, training=True)
        return keras.ops.mean(keras.losses.sparse_categorical_crossentropy(labels, logits, True))

    def put(x):
        return jax.device_put(x, place.get_data_layout(x.shape).backend_layout)

    ids = put(np.random.default_rng(0).integers(1, V, (ROWS, LENGTH), "int32"))
    inputs = {name: ids for name in model.input if name.endswith("_ids") and name != "segment_ids"}
    weights = [v.value for v in model.trainable_variables]
    others = [v.value for v in model.non_trainable_variables]
    step = jax.jit(jax.grad(loss), out_shardings=[w.sharding for w in weights])
    return step.lower(weights, others, inputs, ids).compile().as_text()


def collective_bytes(program):
    """Return the bytes that collectives return, by kind."""
    sizes = collections.Counter()
    for result, kind in re.findall(rf"= (.*?) ({KINDS})(?:-start)?[(]", program):
        for dtype, dims in re.findall(r"(\w+)\[([\d,]*)\]", result):
            sizes[kind] += ITEM[dtype] * math.prod(int(n) for n in dims.split(",") if n)
    return sizes


def held(weights):
    first = jax.devices()[0]
    shards = [s for w in weights for s in w.value.addressable_shards if s.device == first]
    return sum(s.data.nbytes for s in shards)


def main():
    for name, make in MODELS.items():
        for data, model_axis, shards in MESHES[name]:
            place = ModelParallel(data, model_axis, shards)
            keras.distribution.set_distribution(place)
            model = make()
            mesh = {"data": data, "model": model_axis}
            costs = keras_attn.explain(model, LENGTH, ROWS, mesh=mesh, shards_parameters=shards)
            result = {
                "model": name,
                "mesh": [data, model_axis, shards],
                "weights": held(model.weights),
                "collectives": collective_bytes(compiled(model, place)),
                "calculated": {**dataclasses.asdict(costs.devices), "moved": costs.devices.moved},
            }
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
