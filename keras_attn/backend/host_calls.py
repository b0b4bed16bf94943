"""Calls of Python functions by compiled functions, each time they run."""

import numpy as np
from keras import ops

from keras_attn.backend import per_backend


@per_backend
def call_on_host(function, x, then=None):
    """Call `function` with the NumPy array of a tensor, and return `then()`, computed after it.

    While a graph is built or a trace is run, the call is a step of what is compiled. The order of
    calls that share no tensor is undefined. `x` may be a list of sizes, ints and scalars; if all
    are ints the call is made at once.
    """
    function(np.asarray(ops.convert_to_numpy(x)))
    return None if then is None else then()


@per_backend
def wait_for_host_calls():
    """Make the calls that compiled functions have asked for, if they are not made yet."""
