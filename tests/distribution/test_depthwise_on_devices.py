"""The gradient of a depthwise kernel does not depend on the mesh of devices."""

import pytest
from other_backend import needs_jax, run_on

pytestmark = [pytest.mark.slow, needs_jax]

PROGRAM = """
import json
import jax, keras
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from keras_attn.layers import SeparableConvTransition

x = np.random.default_rng(0).normal(size=(4, 7, 6)).astype("float32")
layer = SeparableConvTransition(5)
layer.build(x.shape)
weights = [np.random.default_rng(i).normal(size=v.shape) for i, v in enumerate(layer.variables)]
weights = [w.astype("float32") for w, v in zip(weights, layer.variables) if v.trainable]
rest = [v.value for v in layer.non_trainable_variables]

def loss(weights, x):
    return (layer.stateless_call(weights, rest, x)[0] ** 2).mean()

def gradients_on(*mesh):
    mesh = Mesh(np.array(jax.devices()[: np.prod(mesh)]).reshape(mesh), ("batch", "model"))
    put = lambda value, *axes: jax.device_put(value, NamedSharding(mesh, PartitionSpec(*axes)))
    gradients = jax.jit(jax.grad(loss))([put(w) for w in weights], put(x, "batch"))
    return [np.asarray(g) for g in gradients]

alone, cut = gradients_on(1, 1), gradients_on(2, 4)
print(json.dumps([float(abs(a - b).max() / abs(a).max()) for a, b in zip(alone, cut)]))
"""


def test_a_mesh_of_two_axes_has_the_gradients_of_one_device(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
    differences = run_on("jax", PROGRAM)
    assert len(differences) == 6 and max(differences) < 1e-5
