"""Attention whose heads are divided among devices exchanges sums of outputs, and nothing else."""

import pytest
from other_backend import needs_jax, run_on

pytestmark = [pytest.mark.slow, needs_jax]

PROGRAM = """
import json, re
import jax, keras
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from keras_attn.layers import MultiHeadAttention

mesh = Mesh(np.array(jax.devices()), ("model",))
x = np.random.default_rng(0).normal(size=(3, 5, 8)).astype("float32")

def layout(name):
    if name == "output_bias":
        return None,
    return ("model", None, None)[: 3 if "kernel" in name else 2] if name.startswith("output") else (
        (None, "model", None) if "kernel" in name else ("model", None))

def collectives(**options):
    layer = MultiHeadAttention(4, 3, pattern="causal", **options)
    layer.build(x.shape)
    rest = [v.value for v in layer.non_trainable_variables]
    weights = [
        jax.device_put(v.value, NamedSharding(mesh, PartitionSpec(*layout(v.name))))
        for v in layer.trainable_variables
    ]

    def loss(weights, x):
        return (layer.stateless_call(weights, rest, x, x)[0] ** 2).sum()

    grad = jax.jit(jax.grad(loss), out_shardings=[w.sharding for w in weights])
    program = grad.lower(weights, x).compile().as_text()
    kinds = "all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter"
    return sorted(set(re.findall(rf" ({kinds})(?:-start)?[(]", program)))

print(json.dumps([collectives(), collectives(num_key_value_heads=2)]))
"""


def test_only_sums_of_outputs_are_exchanged(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    assert run_on("jax", PROGRAM) == [["all-reduce"], ["all-reduce"]]
