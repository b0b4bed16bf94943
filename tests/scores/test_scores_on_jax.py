"""Scores on JAX, compiled: plans and caches equal the matrix."""

import pytest
from other_backend import needs_jax, run_on

PROGRAM = """
import json
import jax, keras
import numpy as np
from keras_attn.layers import DifferentialAttention, MultiHeadAttention
from keras_attn.attention.inputs import TileSizes
from keras_attn.memory import KVCache
from keras_attn.patterns import Local
from keras_attn.scores import ALiBi, Cosine, Disentangled, FAVOR

MultiHeadAttention.tile_sizes = TileSizes(1, 700, least_group=4, most_block=3, linear_chunk=4)
x = np.random.default_rng(0).normal(size=(2, 13, 6)).astype("float32")
real = np.arange(13) < np.array([[13], [9]])

def results(layer):
    def loss(weights, x):
        rest = [v.value for v in layer.non_trainable_variables]
        y, _ = layer.stateless_call(weights, rest, x, x, value_mask=real)
        return (y**2).sum(), y
    weights = [variable.value for variable in layer.trainable_variables]
    gradients, y = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(weights, x)
    return y, *jax.tree.leaves(gradients)

def difference(make):
    layers = [make("dense"), make("blockwise")]
    for layer in layers:
        layer.build(x.shape, x.shape)
        for i, w in enumerate(layer.weights):
            w.assign(np.random.default_rng(i).normal(0, 0.6, w.shape))
    pairs = zip(*map(results, layers), strict=True)
    plan = max(float(abs(a - b).max() / max(1, abs(b).max())) for a, b in pairs)
    step = jax.jit(lambda x, cache: layer(x, x, cache=cache))
    cache, steps = KVCache(13).initial(layer, 2), []
    for t in range(13):
        y, cache = step(x[:, t : t + 1], cache)
        steps.append(y)
    return plan, float(abs(np.concatenate(steps, 1) - layer(x, x)).max())

options = {"sinks": True, "use_gate": True, "qk_norm": "rms_norm", "position": "rotary"}
cases = (
    lambda way: MultiHeadAttention(2, 3, score=FAVOR(7), pattern="causal", implementation=way),
    lambda way: MultiHeadAttention(
        3, 4, score=Cosine(), pattern=Local(3), implementation=way, **options),
    lambda way: DifferentialAttention(
        2, 3, 1, score=Disentangled(4, 9) + ALiBi(), pattern="causal", implementation=way),
)
print(json.dumps([difference(make) for make in cases]))
"""


@pytest.mark.slow
@needs_jax
def test_plans_and_decoding_on_jax():
    for plan, decoded in run_on("jax", PROGRAM):
        assert plan < 2e-5 and decoded < 1e-5
