import numpy as np
import oracles
import pytest

from keras_attn.depth import Stack
from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
from keras_attn.residuals import Gate

B, T, D = 2, 5, 7
X, Y = oracles.random(B, T, D, scale=3), oracles.random(B, T, D, seed=1)
KINDS = ("gru", "input", "output", "highway", "sigmoid_tanh", "sum")
BIASED = tuple(kind for kind in KINDS if kind not in ("input", "sum"))
# In the order of the weights: U are the matrices of x, W those of y, where both have some.
NAMES = {
    "gru": ("U_r U_z", "W_r W_z W_g", "U_g"),
    "input": ("W_g",),
    "output": ("W_g",),
    "highway": ("W_g",),
    "sigmoid_tanh": ("W_g U_g",),
    "sum": (),
}


def built(kind, **arguments):
    layer = Gate(kind, **arguments)
    layer.build(X.shape, X.shape)
    return layer


def scrambled(kind, **arguments):
    layer = built(kind, **arguments)
    oracles.scramble(layer)
    return layer


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def matrices(layer):
    """The paper's names and what stands for them; kernels hold their matrices side by side."""
    kernels = [w for w in layer.weights if w.name.endswith("kernel")]
    matrix_by_name = {}
    for names, kernel in zip(NAMES[layer.kind], kernels, strict=True):
        names = names.split()
        assert kernel.shape == (D, len(names) * D)
        parts = np.split(oracles.numpy_of(kernel), len(names), axis=1)
        matrix_by_name.update(zip(names, parts, strict=True))
    return matrix_by_name


def gated(layer, x, y):
    """Section 3.2 of the paper, one position at a time."""
    m = matrices(layer)
    b = oracles.numpy_of(layer.gate_bias) if layer.kind in BIASED else None
    out = np.zeros(x.shape)
    for place in np.ndindex(x.shape[:-1]):
        s, f = x[place].astype("float64"), np.maximum(y[place].astype("float64"), 0)
        if layer.kind == "gru":
            r = sigmoid(f @ m["W_r"] + s @ m["U_r"])
            z = sigmoid(f @ m["W_z"] + s @ m["U_z"] - b)
            h = np.tanh(f @ m["W_g"] + (r * s) @ m["U_g"])
            out[place] = (1 - z) * s + z * h
        elif layer.kind == "input":
            out[place] = sigmoid(s @ m["W_g"]) * s + f
        elif layer.kind == "output":
            out[place] = s + sigmoid(s @ m["W_g"] - b) * f
        elif layer.kind == "highway":
            carried = sigmoid(s @ m["W_g"] + b)
            out[place] = carried * s + (1 - carried) * f
        elif layer.kind == "sum":
            out[place] = s + f
        else:
            out[place] = s + sigmoid(f @ m["W_g"] - b) * np.tanh(f @ m["U_g"])
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_output_equals_the_formula(kind):
    layer = scrambled(kind)
    np.testing.assert_allclose(layer.after(X, Y), gated(layer, X, Y), atol=1e-5)
    expected = oracles.layer_norm(X, *oracles.norm_weights(layer.norm), layer.norm.epsilon)
    np.testing.assert_allclose(layer.before(X), expected, atol=1e-5)


def test_gate_uses_the_relu_of_the_sublayer():
    layer = scrambled("gru")
    np.testing.assert_array_equal(layer.after(X, -np.abs(Y)), layer.after(X, 0 * Y))
    np.testing.assert_array_equal(layer.after(X, Y), layer.after(X, np.maximum(Y, 0)))
    assert np.abs(layer.after(X, Y) - layer.after(X, np.abs(Y))).max() > 0.01


@pytest.mark.slow
def test_deep_gated_stack_starts_near_the_identity():
    """From the first block's input to the last one's output: no norm stands in between."""
    gate = Gate("gru", bias=50)

    def block(index):
        return TransformerBlock(MultiHeadAttention(1, D), FeedForward(3), residual=gate)

    stack = Stack(block, 2)
    np.testing.assert_array_equal(stack(X), X)
    assert stack.norm is None
    biases = [w for w in stack.weights if w.name == "gate_bias"]
    assert len(biases) == 4 and len({id(w) for w in biases}) == 4


def test_each_gate_matrix_is_initialised_as_a_square():
    width = 64
    layer = Gate()
    layer.build((None, None, width))
    limit = np.sqrt(6 / (2 * width))
    for kernel in (layer.x_kernel, layer.y_kernel, layer.candidate_kernel):
        parts = np.split(oracles.numpy_of(kernel), kernel.shape[1] // width, axis=1)
        for part in parts:
            assert 0.99 * limit < np.abs(part).max() < limit
            assert sum(np.array_equal(part, other) for other in parts) == 1


def test_invalid_arguments_raise():
    with pytest.raises(ValueError, match="`kind` must be one of 'gru', 'input'.*kind='lstm'"):
        Gate("lstm")
    with pytest.raises(ValueError, match="`bias` must be a number.*bias='x'"):
        Gate(bias="x")
    with pytest.raises(ValueError, match=r"`y` must have shape \(2, 3, 6\).*\(2, 3, 5\)"):
        Gate("input")(np.ones((2, 3, 6)), np.ones((2, 3, 5)))
