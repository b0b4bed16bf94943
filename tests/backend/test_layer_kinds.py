"""Layers of one kind differ in names and weights only."""

import functools

import keras
import pytest
from keras import ops

from keras_attn.backend.layer_kinds import layer_kinds
from keras_attn.depth import Recurrent, Reversible
from keras_attn.feed_forward import MixtureOfExperts
from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
from keras_attn.models import llama
from keras_attn.ops.activations import gelu_sigmoid, gelu_tanh

D = 6


def block(width=11, dtype=None, residual="post_norm", activation="relu", **kwargs):
    attention = MultiHeadAttention(2, 3, dtype=dtype, **kwargs)
    feed_forward = FeedForward(width, activation, dtype=dtype)
    layer = TransformerBlock(attention, feed_forward, residual=residual, dtype=dtype)
    layer.build((None, None, D))
    return layer


def test_layers_of_one_configuration_are_of_one_kind():
    first, second = layer_kinds([block(activation=gelu_sigmoid) for _ in range(2)])
    assert first == second


@pytest.mark.slow
def test_the_blocks_of_a_preset_are_of_one_kind():
    model = llama(23, num_layers=2, num_heads=2, hidden_dim=8, intermediate_dim=12)
    first, second = layer_kinds(model.depth.blocks)
    assert first == second


def test_each_difference_makes_another_kind():
    frozen, frozen_weight = block(), block()
    frozen.trainable = False
    frozen_weight.attention.query_kernel.trainable = False
    others = [block(13), block(pattern="causal"), block(dtype="mixed_bfloat16")]
    others += [block(activation=gelu_tanh), block(activation=gelu_sigmoid)]
    kinds = layer_kinds([block(), frozen, frozen_weight, *others])
    assert len(set(kinds)) == len(kinds)


@pytest.mark.slow
def test_what_is_changed_after_the_constructor_makes_another_kind():
    dropped, other = block(), block()
    dropped.drop.rate = 0.1
    assert len(set(layer_kinds([dropped, other]))) == 2
    adapted = [block() for _ in range(3)]
    for layer, name, scale in zip(
        adapted, ("query", "value", "query"), (2.0, 2.0, 1.0), strict=True
    ):
        layer.attention.add_update(name, 2, scale)
    assert len(set(layer_kinds(adapted))) == 3


def test_the_order_of_adapters_makes_another_kind():
    """Their weights are in this order."""
    layers = [block(), block()]
    for layer, names in zip(layers, (("query", "value"), ("value", "query")), strict=True):
        for name in names:
            layer.attention.add_update(name, 2, 1.0)
    assert len(set(layer_kinds(layers))) == 2


@pytest.mark.slow
def test_layers_whose_parts_have_changed_places_are_apart():
    def make():
        attention, cross = MultiHeadAttention(2, 3), MultiHeadAttention(2, 3)
        layer = TransformerBlock(attention, FeedForward(11), cross_attention=cross)
        layer.build((None, None, D), (None, None, D))
        return layer

    exchanged = make()
    exchanged.attention, exchanged.cross_attention = exchanged.cross_attention, exchanged.attention
    first, second, third = layer_kinds([make(), make(), exchanged])
    assert first == second != third


def test_layers_with_another_function_in_place_of_a_method_are_apart():
    layers = [block(), block()]
    for layer in layers:
        layer.attention.call = functools.partial(layer.attention.call)
    assert len(set(layer_kinds(layers))) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: Reversible(lambda index: block(residual="pre_norm"), 2),
        lambda: Recurrent(block(), 2, remat=True),
        lambda: TransformerBlock(MultiHeadAttention(2, 3), MixtureOfExperts(FeedForward(8), 2)),
        lambda: TransformerBlock(MultiHeadAttention(2, 3), keras.layers.SimpleRNN(D)),
    ],
    ids=["reversible", "recurrent", "experts", "keras"],
)
def test_layers_that_are_more_than_weights_and_parts_are_apart(make):
    """They recompute, sum over replicas or read masks that Keras attaches to tensors."""
    assert len(set(layer_kinds([make(), make()]))) == 2


@keras.saving.register_keras_serializable("test_layer_kinds")
def noisy(x):
    return x + keras.random.normal(ops.shape(x))


def activation(factor):
    def scaled(x):
        return ops.tanh(x * factor)

    return scaled


def test_layers_whose_configuration_does_not_tell_their_function_are_apart():
    class Scaled(keras.layers.Layer):
        def __init__(self, scale, **kwargs):
            super().__init__(**kwargs)

    class Times(FeedForward):
        """A layer whose configuration lacks its factor."""

        def __init__(self, factor, *sizes):
            super().__init__(*sizes)
            self.factor_of_user = factor

    own = [TransformerBlock(MultiHeadAttention(2, 3), Times(factor, 5)) for factor in (1, 2)]
    assert len(set(layer_kinds(own))) == 2

    def gelu(x):  # named as one of Keras's
        return x

    own += [FeedForward(5, activation=function) for function in ("gelu", gelu, noisy, noisy)]
    assert len(set(layer_kinds(own))) == 6
    dense = [keras.layers.Dense(3, activation=activation(factor)) for factor in (1, 2)]
    no_config = [Scaled(object()) for _ in range(2)]
    assert len(set(layer_kinds([*dense, *no_config]))) == 4
