"""Operations of a decoding step, counted in exported graphs."""

import pytest
from decoding_operations import count_loop_operations

from keras_attn import export, models
from keras_attn.generation import Beam


# Four blocks with cross-attention: an operation more in each sublayer's layer adds at least four.
@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "most"), [("greedy", 299), (Beam(4), 448)], ids=str)
def test_a_step_of_transformer_tiny_has_few_operations(strategy, most, tmp_path):
    model = models.create("transformer_tiny", vocabulary_size=1000)
    directory = export.saved_model(model, tmp_path, strategy=strategy, max_length=8)
    assert count_loop_operations(directory) <= most
