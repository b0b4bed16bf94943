import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attn import patterns
from keras_attn.patterns import Causal, Dense, Pattern

TRUTH = {Dense: lambda i, j: True, Causal: lambda i, j: j <= i}
POSITIONS = st.lists(st.integers(-3, 12), min_size=1, max_size=6)


@pytest.mark.parametrize("pattern", TRUTH)
@settings(deadline=None, max_examples=25)
@given(POSITIONS, POSITIONS)
def test_oracle(pattern, queries, keys):
    allowed = np.asarray(pattern().allowed(np.array(queries), np.array(keys)))
    assert allowed.shape == (len(queries), len(keys)) and allowed.dtype == bool
    for t, s in np.ndindex(allowed.shape):
        assert allowed[t, s] == TRUTH[pattern](queries[t], keys[s])


@pytest.mark.parametrize("pattern", TRUTH)
def test_positions_of_each_row(pattern):
    queries, keys = np.array([[0, 4], [2, 1], [5, 5]]), np.array([[0, 1, 2], [3, 0, 1], [9, 5, 6]])
    allowed = np.broadcast_to(pattern().allowed(queries, keys), (3, 2, 3))
    for b, t, s in np.ndindex(3, 2, 3):
        assert allowed[b, t, s] == TRUTH[pattern](queries[b, t], keys[b, s])
    shared = np.broadcast_to(pattern().allowed(queries, keys[0]), (3, 2, 3))
    for b, t, s in np.ndindex(3, 2, 3):
        assert shared[b, t, s] == TRUTH[pattern](queries[b, t], keys[0, s])


def test_the_mask_has_an_axis_for_heads():
    rows, row = np.array([[0, 1], [1, 2], [2, 3]]), np.arange(4)
    assert Causal().mask(row, row).shape == (1, 1, 4, 4)
    assert Causal().mask(rows, row).shape == (3, 1, 2, 4)
    assert Causal().mask(rows, rows).shape == (3, 1, 2, 2)
    assert Dense().mask(rows, row) is None


def test_names_and_values():
    assert patterns.get("causal") == Causal() and patterns.get("dense") == Dense()
    assert Causal() != Dense()
    assert repr(Causal()) == "Causal()"
    config = keras.saving.serialize_keras_object(Causal())
    assert patterns.get(config) == Causal()


def test_a_pattern_of_ones_own_is_a_function_of_positions():
    from keras_attn.layers import MultiHeadAttention

    @keras.saving.register_keras_serializable("test")
    class Even(Pattern):
        def meets(self, i, j):
            return (i + j) % 2 == 0

    layer = MultiHeadAttention(2, 3, pattern=Even())
    x = np.random.default_rng(0).random((1, 4, 5))
    _, weights = layer(x, x, return_attention_scores=True)
    expected = [[(t + s) % 2 == 0 for s in range(4)] for t in range(4)]
    np.testing.assert_array_equal(np.asarray(weights)[0, 0] > 0, expected)
    assert MultiHeadAttention.from_config(layer.get_config()).pattern == Even()
