"""The catalogue's lines on causality, caches, exports and backends, measured again."""

import pytest
from catalogue_models import BLOCKS, NOT_CAUSAL, causal_model, make, masked_model
from catalogue_support import (
    NAMES,
    cached,
    causality,
    ctranslate2,
    onnx,
    recorded,
    saved_model,
    scrambled,
    trains_on_jax,
)
from other_backend import needs_jax

from keras_attn import depth
from recipes.catalogue.entries import OUTSIDE_MODELS, sections

RECORDED = recorded()
MEASURED = [name for name in NAMES if "causal" in RECORDED[name]]
# Stacks of these take a few exports in the place of many.
TOGETHER = [name for name in BLOCKS if RECORDED[name]["onnx"] == "greedy"]
STACKS = 5


def test_results_are_of_values_of_the_catalogue():
    named = {e.name for _, _, entries in sections() for e in entries}
    assert set(RECORDED) == set(NAMES) == {n for n in named if not n.startswith(OUTSIDE_MODELS)}


@pytest.mark.slow
@pytest.mark.parametrize("name", MEASURED)
def test_causality_caches_and_ctranslate2_are_as_recorded(name):
    model, expected = scrambled(make(name)), RECORDED[name]
    assert causality(model) == expected["causal"]
    assert cached(model) == expected["cached"]
    assert ctranslate2(model) == expected["ctranslate2"]
    if name in NOT_CAUSAL:
        argument, block = NOT_CAUSAL[name]
        other = causality(scrambled(masked_model(block())))
        assert expected["causal_with"] == {argument: other}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(STACKS))
def test_stacks_of_all_parts_of_blocks_export(first):
    different = list(dict.fromkeys(BLOCKS[name] for name in TOGETHER))[first::STACKS]
    model = scrambled(causal_model(depth.Stack([block() for block in different])))
    assert saved_model(model) == "export" and onnx(model) == "greedy"


def test_parts_that_convert_to_onnx_export_as_text():
    assert {RECORDED[name]["saved_model"] for name in TOGETHER} == {"export"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in BLOCKS if n not in TOGETHER])
def test_other_parts_of_blocks_export_as_recorded(name):
    model = scrambled(make(name))
    assert onnx(model) == RECORDED[name]["onnx"]


@pytest.mark.slow
@needs_jax
def test_values_with_loops_or_gradients_of_their_own_train_on_jax_as_recorded():
    names = ["depth.ACT", "depth.ACTRNN", "depth.Reversible", "losses.MixtureOfLogistics"]
    assert trains_on_jax(*names) == {name: RECORDED[name]["jax"] for name in names}
