"""Old and new files of a configuration describe the same model."""

import pytest

from keras_attn.convert.hugging_face.config import (
    FULL,
    SLIDING,
    Config,
    layer_types,
    read_rotary,
    windows,
)
from keras_attn.ops.activations import gelu_tanh

LINEAR = {"rope_type": "linear", "factor": 4.0}
LLAMA3 = {
    **{"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 16},
    **{"low_freq_factor": 1.0, "high_freq_factor": 4.0},
}
YARN = {"rope_type": "yarn", "factor": 4.0}
LENGTH = "original_max_position_embeddings"
# Old values, and new values of which transformers 5.24 makes the same `rope_parameters`.
ROTARY = {
    "default": ({}, {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}),
    "theta": ({"rope_theta": 5e5}, {"rope_parameters": {"rope_theta": 5e5}}),
    "linear": (
        {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 4.0}},
        {"rope_parameters": {"rope_theta": 5e5, **LINEAR}},
    ),
    "llama3": (
        {"rope_theta": 5e5, "rope_scaling": LLAMA3},
        {"rope_parameters": {"rope_theta": 5e5, **LLAMA3}},
    ),
    "yarn by the trained length": (
        {"rope_scaling": {"type": "yarn", "factor": 4.0}, "original_max_position_embeddings": 300},
        {
            "rope_parameters": {
                **{"rope_type": "yarn", "factor": 4.0, "beta_fast": 32, "beta_slow": 1},
                **{"original_max_position_embeddings": 300, "rope_theta": 10000.0},
            }
        },
    ),
    "a scaling replaces parameters": (
        {"rope_scaling": LINEAR},
        {"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}, "rope_scaling": LINEAR},
    ),
    "a scaling and a base replace parameters": (
        {"rope_theta": 5e5, "rope_scaling": {**YARN, LENGTH: 300}},
        {
            **{"rope_parameters": {"rope_theta": 1e6}, "rope_theta": 5e5},
            "rope_scaling": {**YARN, LENGTH: 300},
        },
    ),
    "an empty scaling replaces nothing": (
        {"rope_theta": 1e6},
        {"rope_parameters": {"rope_theta": 1e6}, "rope_scaling": {}},
    ),
    "parameters without a base": (
        {"rope_theta": 5e5, "rope_scaling": LINEAR},
        {"rope_theta": 5e5, "rope_parameters": LINEAR},
    ),
    "yarn to the longest text": (
        {"rope_scaling": {**YARN, LENGTH: 512}},
        {"rope_parameters": YARN, "max_position_embeddings": 512},
    ),
    "yarn by two lengths": (
        {"rope_scaling": {**YARN, LENGTH: 200}},
        {"rope_parameters": {**YARN, LENGTH: 300}, LENGTH: 200, "max_position_embeddings": 512},
    ),
}


@pytest.mark.parametrize("old, new", ROTARY.values(), ids=ROTARY)
def test_rotary_positions_of_old_and_new_files_are_equal(old, new):
    old, new = (read_rotary(Config("folder", values)) for values in (old, new))
    assert repr(old) == repr(new)
    assert old.max_wavelength == new.max_wavelength


def test_gemma_3_has_a_base_for_each_type_of_layers():
    old = {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": LINEAR}
    new = {
        "rope_parameters": {
            FULL: {"rope_theta": 1e6, **LINEAR},
            SLIDING: {"rope_theta": 1e4, "rope_type": "default"},
        }
    }
    by_hand = {
        "rope_parameters": {FULL: {"rope_theta": 1e6}, SLIDING: {}},
        "rope_scaling": LINEAR,
        "rope_local_base_freq": 1e4,
    }
    for values in (old, new, by_hand):
        config = Config("folder", values)
        full = read_rotary(config, FULL, theta=1e6)
        sliding = read_rotary(config, SLIDING, "rope_local_base_freq", 1e4)
        assert (full.max_wavelength, full.scaling.factor) == (1e6, 4.0)
        assert (sliding.max_wavelength, sliding.scaling) == (1e4, None)


def test_the_trained_length_of_a_type_of_layers_is_in_its_parameters():
    """Elsewhere transformers 5.24 ignores it, and takes the longest text."""
    values = {"rope_scaling": YARN, LENGTH: 300, "max_position_embeddings": 512}
    assert read_rotary(Config("folder", values), FULL).scaling.length == 512
    values["rope_scaling"] = {**YARN, LENGTH: 200}
    assert read_rotary(Config("folder", values), FULL).scaling.length == 200


def test_layer_types_decide_where_they_are_given():
    config = Config("folder", {"num_hidden_layers": 3, "sliding_window": 5})
    types = layer_types(config, lambda index: index > 1)
    assert [windows(config, types)(index) for index in range(3)] == [None, None, 5]
    config.values["layer_types"] = [SLIDING, FULL, FULL]
    types = layer_types(config, lambda index: index > 1)
    assert [windows(config, types)(index) for index in range(3)] == [5, None, None]


def test_an_option_that_is_null_has_its_default():
    config = Config("folder", {"a": None, "b": 3, "act": "gelu_new"})
    assert (config.size("a", 7), config.size("b"), config.number("c", 0.5)) == (7, 3, 0.5)
    assert config.activation("act", "gelu") is gelu_tanh
