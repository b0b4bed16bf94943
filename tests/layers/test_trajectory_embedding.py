"""`TrajectoryEmbedding` refuses steps of another shape; all rows may share their steps."""

import numpy as np
import oracles
import pytest

from keras_attn.layers import TrajectoryEmbedding

B, T, S, A = 2, 5, 3, 4
PARTS = oracles.random(B, T), oracles.random(B, T, S), oracles.random(B, T, A)


def test_steps_count_from_zero_by_default_and_may_be_those_of_every_row():
    layer = TrajectoryEmbedding(A, 7, max_steps=11)
    expected = layer(*PARTS)
    for steps in (np.arange(T)[None], np.tile(np.arange(T), (B, 1))):
        np.testing.assert_allclose(layer(*PARTS, steps), expected, atol=1e-6)


def test_steps_of_another_shape_are_refused():
    layer = TrajectoryEmbedding(A, 7, max_steps=11)
    with pytest.raises(ValueError, match=r"`steps` must have shape \(2, 5\).*shape=\(2, 4\)"):
        layer(*PARTS, np.zeros((B, T - 1), "int32"))
