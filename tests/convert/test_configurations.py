"""Old and new files of a configuration describe the same model."""

import math

import pytest

from keras_attn.convert.hugging_face.config import (
    FULL,
    SLIDING,
    Config,
    layer_types,
    windows,
)
from keras_attn.convert.hugging_face.families.bloom import Bloom
from keras_attn.convert.hugging_face.families.rotary_positions import read_rotary
from keras_attn.ops.activations import gelu_tanh
from keras_attn.positions import Llama3, YaRN

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


def parameters(**options):
    sizes = {"hidden_size": 8, "num_attention_heads": 1, "max_position_embeddings": 64}
    return {**sizes, "rope_parameters": {LENGTH: 16, "factor": 4.0, **options}}


SETS = {"rope_type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 3.0]}


@pytest.mark.parametrize(
    "longest, factors, limit",
    [(None, [1.0, 1.5], 16), (9, [1.0, 1.5], 9), (16, [1.0, 1.5], 16), (17, [2.0, 3.0], 17)],
)
def test_the_longest_text_decides_between_two_sets_of_factors(longest, factors, limit):
    config = Config("folder", parameters(**SETS))
    config.max_length = longest
    position = read_rotary(config)
    assert (position.scaling.factors, position.max_length) == (factors, limit)
    old = {"rope_scaling": {**SETS, "type": "su"}, LENGTH: 16, "max_position_embeddings": 64}
    del old["rope_scaling"]["rope_type"]
    config = Config("folder", old)
    config.max_length = longest
    assert repr(read_rotary(config)) == repr(position)


def test_equal_sets_of_factors_hold_for_all_texts():
    values = parameters(**{**SETS, "long_factor": [1.0, 1.5]})
    assert read_rotary(Config("folder", values)).max_length is None


def test_dynamic_angles_are_those_of_the_trained_length_up_to_it():
    config = Config("folder", parameters(rope_type="dynamic"))
    position = read_rotary(config)
    assert (position.scaling, position.max_length) == (None, 64)
    config.max_length = 65
    with pytest.raises(ValueError, match="up to max_position_embeddings=64 only"):
        read_rotary(config)


@pytest.mark.parametrize(
    "options, amplitude",
    [
        ({}, 1 + 0.1 * math.log(4)),
        ({"mscale": 2.0}, 1 + 0.1 * math.log(4)),
        ({"mscale": 2.0, "mscale_all_dim": 0.0}, 1 + 0.1 * math.log(4)),
        ({"mscale": 2.0, "mscale_all_dim": 1.0}, (1 + 0.2 * math.log(4)) / (1 + 0.1 * math.log(4))),
        ({"mscale": 2.0, "mscale_all_dim": 1.0, "attention_factor": 1.5}, 1.5),
    ],
)
def test_the_amplitude_of_yarn_is_that_of_the_first_option_that_gives_it(options, amplitude):
    values = parameters(rope_type="yarn", beta_fast=8, beta_slow=2, truncate=False, **options)
    expected = YaRN(4.0, 16, False, 8, 2, amplitude)
    assert read_rotary(Config("folder", values)).scaling == expected


def test_llama3_has_the_bounds_of_the_options():
    values = parameters(rope_type="llama3", low_freq_factor=2.0, high_freq_factor=6.0)
    assert read_rotary(Config("folder", values)).scaling == Llama3(4.0, 16, 2.0, 6.0)


def test_the_share_of_components_that_turn_is_rounded_down():
    values = {"hidden_size": 30, "num_attention_heads": 3, "partial_rotary_factor": 0.65}
    position = read_rotary(Config("folder", values), partial_rotary_factor=0.5)
    assert position.fraction == 0.6
    del values["partial_rotary_factor"]
    position = read_rotary(Config("folder", values), partial_rotary_factor=0.5)
    assert position.fraction == 0.5


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


BLOOM = {"pretraining_tp": 2, "slow_but_exact": False}


@pytest.mark.parametrize("name", ["apply_residual_connection_post_layernorm", "slow_but_exact"])
def test_what_bloom_computes_otherwise_is_refused(name):
    Bloom().choices(Config("folder", BLOOM))
    with pytest.raises(ValueError, match=f"The option {name}=True is not converted, only False."):
        Bloom().choices(Config("folder", {**BLOOM, name: True}))
