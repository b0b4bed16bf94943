"""Calls of cuDNN's attention in the program that JAX compiles for a GPU.

A GPU is needed to run the program, not to compile it. The numbers of the kernel are not tested.
"""

import pytest
from other_backend import needs_jax, run_on

# Replaces JAX's queries about the machine by cuDNN 9.10 on a Hopper.
PROGRAM = """
import json, re
import jax
import jax._src.cudnn.fused_attention_stablehlo as cudnn
import keras

cudnn.check_cudnn_version = lambda: 91000
cudnn.check_compute_capability = lambda wanted: float(wanted) <= 9.0
cudnn.is_cuda_compute_capability_equal = lambda wanted: False
jax.default_backend = lambda: "gpu"

from keras_attn.layers import MultiHeadAttention
from keras_attn.patterns import Local

def kernels(queries=8, keys=8, size=16, padding=False, dtype="mixed_bfloat16", **arguments):
    x, y = (keras.Input((length, 6), batch_size=2) for length in (queries, keys))
    real = keras.Input((keys,), batch_size=2, dtype="bool")
    layer = MultiHeadAttention(2, size, dtype=dtype, **arguments)
    model = keras.Model([x, y, real], layer(x, y, value_mask=real if padding else None))

    def loss(weights, *inputs):
        output, _ = model.stateless_call(weights, [], list(inputs))
        return (output.astype("float32") ** 2).sum()

    weights = [weight.value for weight in model.weights]
    inputs = [jax.ShapeDtypeStruct(z.shape, z.dtype) for z in (x, y, real)]
    traced = jax.jit(jax.grad(loss)).trace(weights, *inputs)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    return sorted(set(re.findall(r"__cudnn[$](\\w+)", text)))

cases = [
    {}, {"pattern": "causal"}, {"dtype": "mixed_float16"}, {"queries": 512, "keys": 512},
    {"padding": True}, {"pattern": "causal", "padding": True}, {"pattern": "causal", "keys": 10},
    {"dtype": "float32"}, {"size": 12}, {"size": 264}, {"value_dim": 8},
    {"queries": 7}, {"keys": 7}, {"score": "additive"}, {"pattern": Local(3)},
]
print(json.dumps([kernels(**case) for case in cases]))
"""
OPEN = ["fmhaSoftmax", "fmhaSoftmaxBackward"]
MASKED = ["fmhaScaleBiasSoftmax", "fmhaScaleBiasSoftmaxBackward"]


@pytest.mark.slow
@needs_jax
def test_the_program_for_a_gpu_calls_the_kernel_where_it_computes_the_same():
    kernels = run_on("jax", PROGRAM)
    assert kernels == [OPEN] * 4 + [MASKED] * 3 + [[]] * 7 + [MASKED]
