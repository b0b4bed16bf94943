import numpy as np

from keras_attn.attention.inputs import AttentionInputs, PositionRange


def test_operands_of_some_heads_and_other_parts():
    x = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    real, shared = np.ones((2, 1, 4), bool), np.arange(12).reshape(1, 3, 4)
    operands = AttentionInputs(
        x, x, x, shared, PositionRange(0, 4), None, key_mask=real, seed=np.array([1, 2])
    )
    for heads in ([1, 2], [0, 2]):
        some = operands.heads(heads)
        np.testing.assert_array_equal(some.query, x[:, heads])
        np.testing.assert_array_equal(some.query_positions, shared[:, heads])
        assert some.key_mask is real and some.key_positions == PositionRange(0, 4)
    seeds = {tuple(np.asarray(operands.fold_in(number).seed)) for number in range(20)}
    assert len(seeds) == 20
    nested = operands.fold_in(1).fold_in(1).seed, operands.fold_in(2).seed
    assert len({tuple(np.asarray(seed)) for seed in nested}) == 2
    assert operands.replace(seed=None).fold_in(3).seed is None


def test_conditions_add_up():
    operands = AttentionInputs(*[None] * 5, None)
    both = operands.restricted(lambda i, j: i > j).restricted(lambda i, j: i + j > 3)
    i, j = np.arange(5)[:, None], np.arange(5)
    np.testing.assert_array_equal(both.mask_fn(i, j), (i > j) & (i + j > 3))


def test_keys_without_a_mask_are_all_real():
    operands = AttentionInputs(None, np.zeros((2, 4, 3, 5)), *[None] * 2, PositionRange(2, 3), None)
    positions, real = operands.positions_of_keys(), operands.key_marks()
    np.testing.assert_array_equal(positions, [[[[2], [3], [4]]]])
    assert real.dtype == bool and np.asarray(real).shape == (1, 1, 3, 1) and np.all(real)
    some = np.array([[[True, False, True]]])
    np.testing.assert_array_equal(operands.replace(key_mask=some).key_marks(), some[..., None])
