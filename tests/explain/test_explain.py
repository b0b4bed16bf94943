"""`explain`: parameters, tables and errors."""

import json

import keras
import numpy as np
import pytest

import keras_attn
from keras_attn import layers
from keras_attn.compat.unallocated import without_values
from keras_attn.explain.__main__ import main
from keras_attn.models.catalog import PRESETS


def count_parameters(name):
    with without_values():
        return sum(int(np.prod(w.shape)) for w in keras_attn.models.create(name).weights)


def lengths(name):
    """Lengths at which a preset can be explained: those of an axial position are fixed."""
    return 65536 if name == "reformer_enwik8" else 64


@pytest.mark.parametrize("name", ["transformer_tiny", "decision_transformer_hopper"])
def test_the_parameters_of_all_layers_are_those_of_the_model(name):
    costs = keras_attn.explain(name, 32)
    assert costs.total.parameters == count_parameters(name)


@pytest.mark.slow
def test_the_parameters_of_all_presets_are_exact():
    for name in PRESETS:
        costs = keras_attn.explain(name, lengths(name))
        assert costs.total.parameters == count_parameters(name), name
        assert costs.total.forward_flops > 0, name


def test_the_numbers_are_a_dict_that_json_can_write():
    costs = keras_attn.explain("transformer_tiny", 32, batch_size=3)
    found = json.loads(json.dumps(costs.to_dict()))
    assert found["batch_size"] == 3 and found["length"] == 32
    flops = sum(layer["forward_flops"] for layer in found["layers"])
    assert found["total"]["forward_flops"] == flops == costs.total.forward_flops


def test_layers_that_are_alike_share_a_row_of_the_table(capsys):
    main(["llama3_2_1b", "--length", "512", "--precision", "mixed_bfloat16"])
    table = capsys.readouterr().out
    assert "16 x MultiHeadAttention" in table and "1.24 G" in table


def test_a_model_is_unchanged_and_its_layers_are_not_run():
    model = keras_attn.models.gpt(31, num_layers=1, num_heads=2, hidden_dim=8)
    ids = np.array([[3, 5, 7]])
    before = keras.ops.convert_to_numpy(model(ids))
    keras_attn.explain(model, 1024, batch_size=10**9)
    np.testing.assert_array_equal(before, keras.ops.convert_to_numpy(model(ids)))
    assert "call" not in vars(model.depth)


class Unknown(keras.layers.Layer):
    def call(self, x):
        return keras.ops.matmul(x, keras.ops.swapaxes(x, -1, -2))


def test_a_layer_of_ones_own_without_kernels_is_named():
    x = inputs = keras.Input((None, 4))
    x = layers.MultiHeadAttention(2, 3)(x, x)
    costs = keras_attn.explain(keras.Model(inputs, Unknown()(x)), 5)
    assert "Unknown is not counted." in str(costs)


def test_a_length_that_a_layer_refuses_is_refused_in_its_words():
    model = keras_attn.models.gpt(31, num_layers=1, num_heads=2, hidden_dim=8, max_length=7)
    with pytest.raises(ValueError, match="^`x` is longer than the table of positions"):
        keras_attn.explain(model, 8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("transformer_tin", 8), "`model` must be one of .* Did you mean 'transformer_tiny'"),
        (("transformer_tiny", 0), "`length` must be an integer of at least 1. Received: length=0"),
        (("transformer_tiny", 2.5), "`length` must be an integer"),
        (("transformer_tiny", 8, 0), "`batch_size` must be an integer of at least 1"),
        ((keras.Sequential(), 8), "`model` must be the name of a preset, or a functional"),
        ((keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]), 8), "that it calls"),
    ],
)
def test_what_cannot_be_explained_is_refused_in_a_sentence(arguments, message):
    with pytest.raises(ValueError, match=message):
        keras_attn.explain(*arguments)
