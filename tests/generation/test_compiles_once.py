"""Each kind of strategy is compiled once: its numbers, and the weights, are inputs of the loop."""

import os
import pathlib

import keras
import numpy as np
import pytest
from compiled_decoding import (
    PROMPTS,
    STRATEGIES,
    check_fresh_noise,
    check_lengths,
    check_loaded_weights,
    check_one_trace,
    check_rows_are_not_padded,
)
from marks import slow_but
from other_backend import needs_jax, run_on

from keras_attn import depth, layers, models
from keras_attn.generation import Greedy, Speculative, generate
from keras_attn.generation.compilation import prepare
from keras_attn.generation.loop import DecodingOptions

ROOT = pathlib.Path(__file__).parents[2]

ON_JAX = """
import gc, json, pathlib, tempfile, weakref
import jax, keras, numpy as np
from compiled_decoding import *
from keras_attn import layers, models

for name in ("beam", "forced"):
    check_one_trace(name, checked=0)
check_lengths(traces=9)  # buckets of 6, 8, 12, 16, 24 tokens for prompts, and for targets
assert check_fresh_noise() == 1
check_rows_are_not_padded()
check_loaded_weights(pathlib.Path(tempfile.mkdtemp(), "other.weights.h5"))

model, strategy = Table(3), STRATEGIES["sample"](0.3)
traced = jax.jit(lambda ids: generate(model, ids, strategy, 5))(PROMPTS)
check_equal(traced, decode_compiled(model, PROMPTS, strategy, 5, ends=(3,)))

model = models.gpt(11, num_layers=1, num_heads=2, hidden_dim=8, max_length=16)
layers.add_lora(model, 2)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.SGD(9.0), loss)
scores = []
def score():
    scores.append(float(decode_compiled(model, PROMPTS, Greedy(), 3)[1][0]))
score()
model.fit({"token_ids": PROMPTS}, PROMPTS, verbose=0)
score()
layers.merge_lora(model)
score()
references = [weakref.ref(model)]
del model
gc.collect()
print(json.dumps([scores, [reference() is None for reference in references]]))
"""


@pytest.mark.parametrize("name", slow_but(["sample", "beam"], STRATEGIES))
def test_ten_numbers_of_a_strategy_are_traced_once(name):
    check_one_trace(name, checked=3)


def test_all_lengths_share_a_graph():
    check_lengths(traces=1)
    check_fresh_noise()


def test_rows_of_a_model_that_may_not_read_a_mask_are_not_padded():
    check_rows_are_not_padded(jit_compile=True)


def test_the_draft_and_each_layer_must_support_padding():
    def width_of_rows(model, strategy):
        options = DecodingOptions(2, 2, (3,), grows=False, capacity=2)
        rows = PROMPTS[:, :3], np.full(len(PROMPTS), 3)
        return prepare(model, *rows, strategy, options, jit_compile=True)[1][0].shape[1]

    class Mixing(layers.FeedForward):
        pass

    def model_of(feed_forward):
        attention = layers.MultiHeadAttention(2, 3, pattern="causal")
        block = layers.TransformerBlock(attention, feed_forward)
        return models.CausalLanguageModel(layers.TokenEmbedding(9, 6), depth.Stack([block]))

    ours, mixing = model_of(keras.layers.Dense(6)), model_of(Mixing(7))
    convolution = model_of(keras.layers.Conv1D(6, 3, padding="same"))
    assert width_of_rows(ours, Greedy()) == 6
    assert width_of_rows(mixing, Greedy()) == width_of_rows(convolution, Greedy()) == 3
    assert width_of_rows(ours, Speculative(mixing)) == 3


def test_weights_that_are_loaded_are_read_by_the_next_call(tmp_path):
    check_loaded_weights(tmp_path / "other.weights.h5")


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_weights_that_change_between_calls_are_read_by_the_next_call(jit_compile):
    model = models.gpt(11, num_layers=1, num_heads=2, hidden_dim=8, max_length=16)
    layers.add_lora(model, 2)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(9.0), loss)

    def scores(model):
        return np.asarray(generate(model, PROMPTS, Greedy(), 3, jit_compile=jit_compile)[1])

    before = scores(model)
    model.fit({"token_ids": PROMPTS}, PROMPTS, verbose=0)
    fitted = scores(model)
    layers.merge_lora(model)
    merged = scores(model)
    model.embedding.table.assign(-model.embedding.table)
    assigned = scores(model)
    assert np.abs(fitted - before).max() > 1e-3
    np.testing.assert_allclose(merged, fitted, rtol=1e-4)
    assert np.abs(assigned - merged).max() > 1e-3
    fresh = models.gpt(11, num_layers=1, num_heads=2, hidden_dim=8, max_length=16)
    fresh.set_weights(model.get_weights())
    np.testing.assert_allclose(assigned, scores(fresh), rtol=1e-5)


@pytest.mark.slow
@needs_jax
def test_jax_compiles_once_for_a_bucket_and_frees_the_model():
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests" / "support")))
    scores, freed = run_on("jax", ON_JAX, PYTHONPATH=path)
    before, fitted, merged = scores
    assert before != fitted and merged == pytest.approx(fitted, rel=1e-5)
    assert freed == [True]
