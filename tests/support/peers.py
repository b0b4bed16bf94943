"""Results of a peer in another Python, since torch and TensorFlow need not share one."""

import functools
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

# A Python with the peer's packages; by default the one that runs the tests.
PACKAGES = {"local_attention", "reformer_pytorch", "torch", "transformers", "x_transformers"}
PYTHON = os.environ.get("KERAS_ATTN_PEERS_PYTHON", sys.executable)


@functools.cache
def _missing(packages):
    program = f"import {', '.join(packages)}"
    done = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, check=False)
    return done.stderr.splitlines()[-1] if done.returncode else None


def require(*packages):
    """Skip the test if the peer's Python lacks a package."""
    if missing := _missing(packages):
        pytest.skip(f"{missing}; KERAS_ATTN_PEERS_PYTHON may name another Python")


def results_of(script, case):
    """Return the arrays of a case by name; skip the test if that Python lacks a package.

    The script writes arrays "case/name" to a file.
    """
    arrays, missing = _run(script)
    if missing:
        pytest.skip(f"{missing}; KERAS_ATTN_PEERS_PYTHON may name another Python")
    return part(arrays, f"{case}/")


@functools.cache
def _run(script):
    """Return the arrays that a script writes, or none and the package that it misses."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "results.npz")
        command = [PYTHON, script, path]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        missing = re.search(r"ModuleNotFoundError: No module named '(\w+)", done.stderr)
        if done.returncode and missing and missing[1] in PACKAGES:
            return {}, missing[0]
        assert done.returncode == 0, done.stderr[-3000:]
        with np.load(path) as arrays:
            return dict(arrays), None


def part(weights, prefix):
    """Return the weights below a prefix, by the rest of their names."""
    return {k.removeprefix(prefix): w for k, w in weights.items() if k.startswith(prefix)}


def set_attention(layer, weights, *names):
    """Copy torch's linear layers for queries, keys, values and outputs, (out, in)."""
    for ours, theirs in zip(("query", "key", "value", "output"), names, strict=True):
        for kind, name in (("kernel", "weight"), ("bias", "bias")):
            target = getattr(layer, f"{ours}_{kind}")
            if target is not None:
                target.assign(weights[f"{theirs}.{name}"].T.reshape(target.shape))


def set_dense(target, weights, *names):
    """Copy torch's linear layers to the kernels, or kernels and biases, of a layer in order."""
    arrays = []
    for name in names:
        arrays.append(weights[f"{name}.weight"].T)
        if f"{name}.bias" in weights:
            arrays.append(weights[f"{name}.bias"])
    target.set_weights(arrays)


def set_experts_of_gpt_oss(layer, weights):
    """Copy a router and its experts, whose gates and inputs alternate in one matrix."""
    both, biases = weights["experts.gate_up_proj"], weights["experts.gate_up_proj_bias"]
    values = {
        "router_kernel": weights["router.weight"].T,
        "router_bias": weights["router.bias"],
        "gate_kernel": both[..., ::2],
        "intermediate_kernel": both[..., 1::2],
        "output_kernel": weights["experts.down_proj"],
        "gate_bias": biases[..., ::2],
        "intermediate_bias": biases[..., 1::2],
        "output_bias": weights["experts.down_proj_bias"],
    }
    layer.set_weights([values[weight.name] for weight in layer.weights])


def set_norm(norm, weights, name):
    """Copy a norm's gain, and its bias if it has one."""
    kinds = ("weight", "bias")
    norm.set_weights([weights[f"{name}.{k}"] for k in kinds if f"{name}.{k}" in weights])


def check_close(outputs, expected):
    """Check that the largest error is at most two millionths of the largest output."""
    error = np.abs(np.asarray(outputs) - expected).max() / np.abs(expected).max()
    print(f"largest error {error:.1e} of the largest output")
    assert np.shape(outputs) == expected.shape and error <= 2e-6
