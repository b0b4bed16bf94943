"""Layers of one kind differ in names and weights only."""

import keras
from keras import ops

from keras_attn.backend.layer_kinds import layer_kinds
from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock

D = 6


def block(width=11, dtype=None, **kwargs):
    attention = MultiHeadAttention(2, 3, dtype=dtype, **kwargs)
    layer = TransformerBlock(attention, FeedForward(width, dtype=dtype), dtype=dtype)
    layer.build((None, None, D))
    return layer


def test_layers_of_one_configuration_are_of_one_kind():
    first, second = layer_kinds([block(), block()])
    assert first == second


def test_each_difference_makes_another_kind():
    frozen, frozen_weight = block(), block()
    frozen.trainable = False
    frozen_weight.attention.query_kernel.trainable = False
    others = [block(13), block(pattern="causal"), block(dtype="mixed_bfloat16")]
    kinds = layer_kinds([block(), frozen, frozen_weight, *others])
    assert len(set(kinds)) == len(kinds)


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


def test_a_layer_with_a_function_in_place_of_a_method_is_apart():
    changed, plain = block(), block()
    call = changed.attention.call
    changed.attention.call = lambda *inputs, **kwargs: call(*inputs, **kwargs)
    assert len(set(layer_kinds([changed, plain]))) == 2


def activation(factor):
    def scaled(x):
        return ops.tanh(x * factor)

    return scaled


def test_layers_whose_configuration_does_not_tell_their_function_are_apart():
    class Scaled(keras.layers.Layer):
        def __init__(self, given, **kwargs):
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

    own += [FeedForward(5, activation=function) for function in ("gelu", gelu)]
    assert len(set(layer_kinds(own))) == 4
    dense = [keras.layers.Dense(3, activation=activation(factor)) for factor in (1, 2)]
    no_config = [Scaled(object()) for _ in range(2)]
    assert len(set(layer_kinds([*dense, *no_config]))) == 4
