"""Each kind of strategy is compiled once: its numbers, and the weights, are inputs of the loop."""

import os
import pathlib

import pytest
from compiled_decoding import STRATEGIES, check_fresh_noise, check_lengths, check_one_trace
from marks import slow_but
from other_backend import needs_jax, run_on

ROOT = pathlib.Path(__file__).parents[2]

ON_JAX = """
import gc, json, weakref
import jax, keras, numpy as np
from compiled_decoding import *
from keras_attn import layers, models

for name in ("beam", "forced"):
    check_one_trace(name, checked=0)
check_lengths(traces=9)  # buckets of 6, 8, 12, 16, 24 tokens for prompts, and for targets
assert check_fresh_noise() == 1

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


@pytest.mark.slow
@needs_jax
def test_jax_compiles_once_for_a_bucket_and_frees_the_model():
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests" / "support")))
    scores, freed = run_on("jax", ON_JAX, PYTHONPATH=path)
    before, fitted, merged = scores
    assert before != fitted and merged == pytest.approx(fitted, rel=1e-5)
    assert freed == [True]
