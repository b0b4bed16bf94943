"""Operations of a decoding step, counted in the graphs that exports write."""

import pytest
from decoding_operations import count_loop_operations

from keras_attn import export, models
from keras_attn.generation import Beam


# 299 is below the 300 that were asked for; the number for beams only keeps them from growing. An
# operation more in a layer adds at least four, for there are four blocks with cross-attention.
@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "most"), [("greedy", 299), (Beam(4), 448)], ids=str)
def test_a_step_of_transformer_tiny_has_few_operations(strategy, most):
    model = models.create("transformer_tiny", vocabulary_size=1000)
    translator = export.IdTranslator(model, strategy, max_length=8)
    graph = translator.signatures["ids"].get_concrete_function().graph.as_graph_def()
    assert count_loop_operations(graph) <= most
