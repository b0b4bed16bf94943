"""Positions that are added to integers."""

import numpy as np
import pytest

from keras_attn.positions import Axial, ImageCoordinates, Learned, Sinusoidal, Timestep

B, T, D = 2, 5, 7


@pytest.mark.parametrize(
    "layer",
    [Learned(11), Axial((3, 5), (3, 4)), ImageCoordinates(1, 5, 1), Sinusoidal(), Timestep()],
    ids=repr,
)
def test_integers_get_positions_that_are_not_rounded(layer):
    x = np.arange(B * T * D, dtype="int32").reshape(B, T, D)
    np.testing.assert_allclose(layer(x), layer(x.astype("float32")), atol=1e-6)
