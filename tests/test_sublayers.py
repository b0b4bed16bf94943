"""Flags, names, clones and checkpoints of layers that other layers make, over the catalogue."""

import random

import keras
import numpy as np
import pytest
import tensorflow as tf
from catalogue_models import MODELS, inputs_of, make, make_all_blocks

from keras_attn import depth, layers, models
from keras_attn.compat.keras_layers import flatten_layers
from keras_attn.models.model import Model
from keras_attn.part_states import freeze_parts
from keras_attn.sublayers import all_sublayers, sublayers

MAKE = {
    "residuals.SandwichNorm": lambda: make("residuals.SandwichNorm"),
    "causal blocks": lambda: make_all_blocks(True),
    "other blocks": lambda: make_all_blocks(False),
    **MODELS,
}
# Residuals with two norms each, a head tied to an embedding, a memory.
FAST = ["residuals.SandwichNorm", "models.bert", "models.gtrxl"]
OTHERS = [name for name in MAKE if name not in FAST]
BY_NAME = [*FAST, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]


def flags(model):
    weights = [weight.trainable for weight in model.weights]
    return weights, [layer.trainable for layer in flatten_layers(model)]


def freeze_some(model, seed):
    """Freeze some layers with all inside them, and as many variables."""
    choose, layers_with_weights = random.Random(seed), []
    for layer in flatten_layers(model):
        if layer is not model and layer.weights:
            layers_with_weights.append(layer)
    for _ in range(1 + len(layers_with_weights) // 20):
        choose.choice(layers_with_weights).trainable = False
        choose.choice(model.weights).trainable = False
    assert not all(flags(model)[0])


def hidden_parts(layer):
    """Return the parts that an attribute of the layer's class would hide on torch."""
    names = [name for name in sublayers(layer) if hasattr(type(layer), name)]
    return {f"{type(layer).__name__}.{name}" for name in names}


def outputs(model, inputs):
    return [keras.ops.convert_to_numpy(x) for x in keras.tree.flatten(model(inputs))]


@pytest.mark.parametrize("name", BY_NAME)
def test_a_model_comes_back_with_its_flags_names_ties_and_weights(name, tmp_path):
    model = MAKE[name]()
    inputs, _ = inputs_of(model)
    model = getattr(model, "model", model)  # Keras clones no subclassed model around it
    if getattr(model, "memory", None) is not None:
        inputs |= model.initial_memory(2)
    everywhere = all_sublayers(model).values()
    assert {id(layer) for layer in flatten_layers(model)} <= set(map(id, everywhere))
    assert set().union(*map(hidden_parts, everywhere)) == set()
    # `+` of Keras's tensors is its `add`, which may add along the wrong axis.
    assert "Add" not in {type(operation).__name__ for operation in model.operations}

    paths = [variable.path for variable in model.variables]
    assert len(set(paths)) == len(paths)
    keras.utils.set_random_seed(5)
    other = MAKE[name]()
    other = getattr(other, "model", other)
    if isinstance(model, Model):  # Keras numbers the layers of a functional model of one's own
        assert [variable.path for variable in other.variables] == paths

    checkpoint = tf.train.Checkpoint(model=model).save(tmp_path / "checkpoint")
    status = tf.train.Checkpoint(model=other).restore(checkpoint)
    status.assert_consumed()
    status.assert_existing_objects_matched()
    for weight, restored in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, restored)

    freeze_some(model, name)
    assert flags(type(model).from_config(model.get_config())) == flags(model)
    clone = keras.models.clone_model(model)
    assert type(clone) is type(model) and flags(clone) == flags(model)
    clone.set_weights(model.get_weights())
    for wanted, received in zip(outputs(model, inputs), outputs(clone, inputs), strict=True):
        np.testing.assert_array_equal(wanted, received)
    model.save(tmp_path / "model.keras")
    assert flags(keras.models.load_model(tmp_path / "model.keras")) == flags(model)


def test_a_frozen_twin_leaves_the_other_trainable_and_bits_as_they_are(tmp_path):
    sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": 6, "intermediate_dim": 11}
    model = models.gpt(13, **sizes)
    block = model.depth.blocks[1]
    block.attention_residual.trainable = False
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    loaded_block = loaded.depth.blocks[1]
    assert not loaded_block.attention_residual.norm.trainable_weights
    assert len(loaded_block.feed_forward_residual.norm.trainable_weights) == 2
    before = [keras.ops.convert_to_numpy(w) for w in loaded_block.attention_residual.weights]
    free = keras.ops.convert_to_numpy(loaded_block.feed_forward_residual.norm.weights[0])
    ids = np.random.default_rng(0).integers(1, 13, (7, 5))
    loaded.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    loaded.fit(ids, ids, verbose=0)
    for old, weight in zip(before, loaded_block.attention_residual.weights, strict=True):
        np.testing.assert_array_equal(old, keras.ops.convert_to_numpy(weight))
    assert (
        free != keras.ops.convert_to_numpy(loaded_block.feed_forward_residual.norm.weights[0])
    ).any()


def own(layer):
    inputs = keras.Input((5, 6))
    return keras.Model(inputs, layer(inputs))


def block():
    return layers.TransformerBlock(layers.MultiHeadAttention(2, 3), layers.FeedForward(7))


def test_layers_that_keep_their_own_configuration_keep_their_flags():
    for layer in (depth.ACT(block(), 2), depth.Recurrent(block(), 2), depth.Stack([block()])):
        model = own(layer)
        layer.trainable = False
        for other in (type(model).from_config(model.get_config()), keras.models.clone_model(model)):
            assert not other.trainable_variables, type(layer).__name__


def test_a_layer_that_is_frozen_before_it_is_built_stays_frozen():
    for layer in (layers.FeedForward(7), layers.GatedFeedForward(7), depth.Stack([block()])):
        layer.trainable = False
        assert not own(layer).trainable_variables, type(layer).__name__
    partly = block()
    partly.feed_forward.trainable = False
    assert len(own(partly).trainable_variables) == 8 + 2 * 2


def test_flags_of_layers_with_adapters_hold_after_the_merge():
    model = models.gpt(13, num_layers=2, num_heads=2, hidden_dim=6, intermediate_dim=11)
    layers.add_lora(model, 2)
    model.depth.blocks[0].trainable = False
    layers.merge_lora(model)
    assert len(model.trainable_variables) == len(model.weights) - len(model.depth.blocks[0].weights)


def test_flags_of_an_unknown_part_are_refused():
    layer = layers.FeedForward(5)
    layer.build((2, 3))
    with pytest.raises(ValueError, match="Received: hidden/nowhere"):
        freeze_parts(layer, {"layers": ["hidden/nowhere"], "variables": {}})


def test_flags_that_wait_for_a_build_give_way_to_a_later_setting():
    layer = layers.FeedForward(5)
    layer.build((2, 3))
    layer.trainable = False
    other = layers.FeedForward.from_config(layer.get_config())
    other.trainable = True
    other.build((2, 3))
    assert len(other.trainable_weights) == 4


def test_a_file_of_a_model_with_adapters_has_the_flags_that_it_had_without(tmp_path):
    model = models.gpt(13, num_layers=1, num_heads=2, hidden_dim=6, intermediate_dim=11)
    model.position.trainable = False
    expected = flags(model)
    layers.add_lora(model, 2, ["query", "intermediate"])
    model.save(tmp_path / "model.keras")
    assert flags(keras.models.load_model(tmp_path / "model.keras")) == expected
    layers.merge_lora(model)
    assert flags(model) == expected


def test_names_of_the_user_stay():
    attention = layers.MultiHeadAttention(2, 3, name="mine")
    block = layers.TransformerBlock(attention, layers.FeedForward(7))
    stack = depth.Stack([block])
    stack.build((2, 5, 6))
    paths = [weight.path for weight in stack.weights]
    assert f"{stack.name}/blocks_0/mine/query_kernel" in paths


def test_a_clone_of_an_own_model_keeps_a_tie_and_a_clone_function_is_called_once_a_layer():
    ids = keras.Input((None,), dtype="int32")
    embedding = layers.TokenEmbedding(13, 6)
    own = keras.Model(ids, layers.TokenHead(embedding)(embedding(ids)))
    clone = keras.models.clone_model(own)
    assert len(clone.weights) == len(own.weights) == 2
    called = []

    def reuse(layer):
        called.append(layer)
        return layer

    model = models.gpt(13, num_layers=1, num_heads=2, hidden_dim=6, intermediate_dim=11)
    reused = keras.models.clone_model(model, clone_function=reuse)
    assert reused.depth is model.depth and type(reused) is type(model)
    assert len(called) == len(set(map(id, called)))


@pytest.mark.parametrize(
    "make_layer, shape",
    [
        (lambda: layers.TokenEmbedding(11, 6), (3, 5)),
        (lambda: layers.FeedForward(7), (3, 5, 6)),
        (
            lambda: depth.Stack(
                lambda i: layers.TransformerBlock(
                    layers.MultiHeadAttention(2, 3), layers.FeedForward(7)
                ),
                2,
            ),
            (3, 5, 6),
        ),
    ],
)
def test_layers_in_time_distributed(make_layer, shape):
    layer = make_layer()
    assert layer.compute_output_shape((2, *shape[1:])) == (2, 5, 6)
    assert not layer.built
    dtype = "int32" if len(shape) == 2 else "float32"
    inputs = keras.Input(shape, dtype=dtype)
    assert keras.layers.TimeDistributed(layer)(inputs).shape == (None, 3, 5, 6)
    assert layer.compute_output_shape((2, *shape[1:])) == (2, 5, 6)


def test_the_shape_of_attention_is_that_of_keras():
    ours, theirs = layers.MultiHeadAttention(2, 3), keras.layers.MultiHeadAttention(2, 3)
    shapes = (2, 5, 6), (2, 7, 6)
    assert ours.compute_output_shape(*shapes) == theirs.compute_output_shape(*shapes)
    assert ours.compute_output_shape(*shapes, key_shape=shapes[1]) == shapes[0]
