import numpy as np
import pytest
from models import formulas
from models.builders import build

from keras_attn.models import compressive_transformer


@pytest.mark.slow
def test_it_is_transformer_xl_until_inputs_are_compressed():
    """Read in 4, 3 and 4 tokens: the last segment meets 7 others, as they are or compressed."""
    ends, sizes = (4, 7, formulas.T), {**formulas.SIZES, "num_layers": 1}
    plain = formulas.scrambled(build("transformer_xl", memory_length=7, clamp_length=None))
    expected, weights = formulas.read(plain, ends), plain.get_weights()
    for memory_length in (7, 4):
        other = compressive_transformer(**sizes, memory_length=memory_length, rate=2)
        other.set_weights([*weights, *other.get_weights()[len(weights) :]])
        far = np.abs(formulas.read(other, ends) - expected).max(axis=(0, 2))
        np.testing.assert_allclose(far[:7], 0, atol=1e-5)
        assert far[7:].max() < 1e-5 if memory_length == 7 else far[7:].min() > 1e-3
