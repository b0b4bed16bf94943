"""A position table under other dtype policies."""

import keras
import numpy as np
import oracles

POLICIES = ["mixed_bfloat16", "mixed_float16", "float16"]


def check_policy(layer, reference, x, policy):
    """The output has the policy's compute dtype, and is that of float32 as nearly as it can be."""
    compute = keras.dtype_policies.get(policy).compute_dtype
    output = layer(x)
    assert keras.backend.standardize_dtype(output.dtype) == compute
    tolerance = 2.0**-7 if compute == "bfloat16" else 2.0**-10
    np.testing.assert_allclose(oracles.numpy_of(output), reference(x), atol=2 * tolerance)
