import math

import numpy as np
import pytest

from keras_attn.viz import plot_sinusoids


def test_the_picture_shows_the_formula_of_the_paper():
    num_positions, hidden_dim = 5, 6
    picture = plot_sinusoids(num_positions, hidden_dim).axes[0].images[0]
    table = np.zeros((num_positions, hidden_dim))
    for position in range(num_positions):
        for pair in range(hidden_dim // 2):
            angle = position / 10000 ** (2 * pair / hidden_dim)
            table[position, 2 * pair] = math.sin(angle)
            table[position, 2 * pair + 1] = math.cos(angle)
    np.testing.assert_allclose(picture.get_array(), table, atol=1e-6)
    assert picture.get_clim() == (-1, 1)


@pytest.mark.parametrize("arguments", [{"layout": "interleave"}, {"max_wavelength": 0}])
def test_wrong_arguments_are_refused(arguments):
    (name,) = arguments
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        plot_sinusoids(4, 8, **arguments)
