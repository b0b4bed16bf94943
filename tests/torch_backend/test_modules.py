"""Our layers as modules of torch: their parameters, their state, adapters, a reshaped model."""

import keras
import numpy as np
import pytest
from catalogue_models import BLOCKS, MODELS, inputs_of, make
from each import check_each

from keras_attn import depth, layers, models
from keras_attn.convert.hugging_face import overrides
from keras_attn.sublayers import all_sublayers

SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 6, "intermediate_dim": 11}


def same_objects(parameters, variables):
    return {id(x) for x in parameters} == {id(variable.value) for variable in variables}


def check_parameters(name):
    model = make(name)
    parameters = list(model.parameters())
    assert same_objects(parameters, model.variables), (len(parameters), len(model.variables))
    trained = [x for x in parameters if x.requires_grad]
    assert same_objects(trained, model.trainable_variables)


def test_the_parameters_of_a_model_are_its_variables():
    check_each(check_parameters, [*BLOCKS, *MODELS])


def test_the_state_of_a_model_loads_into_another_one():
    first, second = (models.transformer(13, **SIZES) for _ in range(2))
    second.load_state_dict(first.state_dict())
    for mine, other in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("name", ["models.gpt", "models.bert"])
def test_adapters_are_parameters_until_they_are_merged(name):
    model = make(name)
    count = len(list(model.parameters()))
    paths = layers.add_lora(model, 3, targets=["query", "feed_forward/*"])
    assert len(paths) == 3
    assert same_objects(model.parameters(), model.variables)
    assert len(list(model.parameters())) == count + 2 * len(paths)
    assert sum(x.requires_grad for x in model.parameters()) == 2 * len(paths)
    inputs, _ = inputs_of(model)
    outputs = keras.ops.convert_to_numpy(keras.tree.flatten(model(inputs))[0])
    layers.merge_lora(model)
    assert same_objects(model.parameters(), model.variables)
    assert len(list(model.parameters())) == count
    merged = keras.ops.convert_to_numpy(keras.tree.flatten(model(inputs))[0])
    np.testing.assert_allclose(merged, outputs, atol=1e-6)


def test_a_replaced_sublayer_is_the_one_that_computes():
    block = layers.TransformerBlock(layers.MultiHeadAttention(2, 3), layers.FeedForward(7))
    other = block.feed_forward = layers.FeedForward(17)
    assert block.feed_forward is other is all_sublayers(block)["feed_forward"]
    block(keras.random.normal((2, 5, 6), seed=1))
    assert 17 in {weight.shape[-1] for weight in block.weights}


def test_a_changed_model_keeps_its_weights():
    model = make("models.transformer")
    changed = overrides.change(model, depth=lambda blocks: depth.Stack(blocks, remat=True))
    assert changed.encoder.remat and not model.encoder.remat
    inputs, _ = inputs_of(model)
    outputs = [keras.ops.convert_to_numpy(each(inputs)) for each in (model, changed)]
    np.testing.assert_array_equal(*outputs)


def test_blocks_without_a_part_say_none():
    block = layers.TransformerBlock(layers.MultiHeadAttention(2, 3), layers.FeedForward(7))
    assert block.cross_attention is None
    assert make("models.gpt").memory is None
