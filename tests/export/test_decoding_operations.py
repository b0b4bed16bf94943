"""Operations of a decoding step, counted in the graphs that exports write."""

import pytest
from decoding_operations import count_loop_operations

from keras_attn import export, models


# Below the 300 that were asked for. An operation more in a layer adds at least four, for there are
# four blocks with cross-attention.
@pytest.mark.slow
def test_a_step_of_transformer_tiny_has_few_operations():
    model = models.create("transformer_tiny", vocabulary_size=1000)
    translator = export.IdTranslator(model, max_length=8)
    graph = translator.signatures["ids"].get_concrete_function().graph.as_graph_def()
    assert count_loop_operations(graph) <= 299
