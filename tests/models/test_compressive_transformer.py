import numpy as np
import pytest
from models import formulas

from keras_attn.models import compressive_transformer, transformer_xl


@pytest.fixture(scope="module")
def model():
    # The first segment of four tokens compresses two.
    model = compressive_transformer(**formulas.SIZES, memory_length=2, compressed_length=3, rate=2)
    return formulas.scrambled(model)


@pytest.mark.parametrize("memory_length, equals", [(7, True), (4, False)])
def test_it_is_transformer_xl_until_inputs_are_compressed(model, memory_length, equals):
    """Read in 4, 3 and 4 tokens: the last segment meets 7 others, as they are or compressed."""
    ends, sizes = (4, 7, formulas.T), {**formulas.SIZES, "memory_length": 7}
    plain = formulas.scrambled(transformer_xl(**sizes))
    sizes["memory_length"] = memory_length
    other = compressive_transformer(**sizes, rate=2)
    weights = plain.get_weights()
    other.set_weights([*weights, *other.get_weights()[len(weights) :]])
    far = np.abs(formulas.read(other, ends) - formulas.read(plain, ends)).max(axis=(0, 2))
    np.testing.assert_allclose(far[:7], 0, atol=1e-5)
    assert far[7:].max() < 1e-5 if equals else far[7:].min() > 1e-3


def test_later_tokens_have_no_influence(model):
    formulas.check_no_leak(model)


@pytest.mark.slow
def test_generation_keeps_all_keys(model):
    formulas.check_generation(model)
