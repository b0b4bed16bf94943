import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from other_backend import needs_jax, run_on

from keras_attn.attention.inputs import (
    combine_masks,
    join_masks,
    spread_attention_mask,
    spread_padding_mask,
)


def test_combining_is_logical_and():
    a = np.array([[True, False], [True, True]])
    b = np.array([[True, True], [False, True]])
    np.testing.assert_array_equal(combine_masks(a, None, b), [[True, False], [False, True]])
    assert combine_masks(None, None) is None
    assert combine_masks(None, a) is a


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_a_mask_of_any_rank_means_its_last_axes(data):
    """(T, S), (B, T, S) and (B, N, T, S), with ones anywhere, mean what numpy's rules say."""
    sizes = batch, heads, length, keys = [data.draw(st.integers(1, 4)) for _ in range(4)]
    rank = data.draw(st.sampled_from([2, 3, 4]))
    full = {2: (length, keys), 3: (batch, length, keys), 4: tuple(sizes)}[rank]
    shape = tuple(data.draw(st.sampled_from([1, size])) for size in full)
    mask = np.random.default_rng(data.draw(st.integers(0, 9))).random(shape) < 0.5
    spread_mask = np.broadcast_to(spread_attention_mask(mask, *sizes), sizes)
    for b, n, t, s in np.ndindex(*sizes):
        index = {2: (t, s), 3: (b, t, s), 4: (b, n, t, s)}[rank]
        assert spread_mask[b, n, t, s] == np.broadcast_to(mask, full)[index]


def test_padding_is_a_mask_of_keys():
    mask = np.array([[True, True, False]])
    spread_mask = np.broadcast_to(spread_padding_mask(mask, 2, 3), (2, 5, 4, 3))
    assert np.all(spread_mask == [True, True, False])
    assert spread_padding_mask(None, 2, 3) is None
    assert spread_attention_mask(None, 2, 3, 4, 5) is None


def test_masks_one_after_the_other():
    x, y = np.zeros((2, 1, 5)), np.zeros((2, 2, 5))
    mask = np.array([[True, False], [False, True]])
    joined_mask = join_masks((x, None, "first"), (y, mask, "second"))
    np.testing.assert_array_equal(joined_mask, [[True, True, False], [True, False, True]])
    np.testing.assert_array_equal(join_masks((x, [[False]], ""), (y, None, ""))[:, 0], [False] * 2)
    assert join_masks((x, None, ""), (y, None, "")) is None
    with pytest.raises(ValueError, match=r"`second` must have shape \(2, 2\)"):
        join_masks((x, None, "first"), (y, mask[:, :1].repeat(3, 1), "second"))
    with pytest.raises(ValueError, match="`second` must be boolean"):
        join_masks((x, None, "first"), (y, mask.astype("float32"), "second"))


@pytest.mark.parametrize("shape", [(3,), (2, 4), (3, 3), (2, 1, 3)])
def test_padding_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"`padding_mask` must have shape \(2, 3\)"):
        spread_padding_mask(np.ones(shape, bool), 2, 3)


COMPILED = """
import json
import jax, keras, numpy as np
from keras_attn.models import bert

keras.utils.set_random_seed(0)
model = bert(13, num_layers=1, num_heads=2, hidden_dim=6, intermediate_dim=7, dropout=0.0)
ids = np.array([[4, 5, 6, 0, 0]])
expected = model({"token_ids": ids[:, :3]})
output = jax.jit(model)({"token_ids": ids})[:, :3]
print(json.dumps(float(abs(output - expected).max())))
"""


@pytest.mark.slow
@needs_jax
def test_padding_stays_hidden_from_what_jax_compiles():
    """Keras cannot write its implicit mask on what JAX traces, and keeps it elsewhere."""
    assert run_on("jax", COMPILED) < 1e-5
