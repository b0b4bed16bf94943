"""The fused kernel is chosen where it gives what the matrix of scores gives, and nowhere else.

Keras computes `dot_product_attention` on any machine, only slower: the choice is forced here, and
the same tests pass with `KERAS_BACKEND=jax`. Which tensors the kernel takes is in
`tests/backend/test_jax_fused_attention.py`.
"""

import functools

import keras
import numpy as np
import oracles
import pytest
from keras import ops
from marks import slow, slow_but

from keras_attn.attention import fused
from keras_attn.attention.plans import AllKeys, Plan
from keras_attn.layers import MultiHeadAttention, multi_head_attention
from keras_attn.patterns import AdaptiveSpan, Causal, Dense, Local, PerHead
from keras_attn.scores import DotProduct
from keras_attn.testing.numerics import compute_gradients

B, T, S, N, H, D = 3, 7, 11, 2, 4, 5
X, CONTEXT = oracles.random(B, T, D), oracles.random(B, S, D, seed=1)
# Padding before and after; the last row has no key at all.
ENDS = np.arange(S)[None] < np.array([[S], [4], [0]])
STARTS = np.arange(T)[None] >= np.array([[0], [3], [T]])
PAIRS = np.random.default_rng(0).random((B, N, T, S)) < 0.4
PAIRS[0, :, 2] = False
SEGMENTS = np.array([[5, 5, 5, 2, 2, 0, 0], [1, 3, 3, 3, 3, 3, 0], [4] * 7])[:B]
PLACES = np.array([[4, 9, 2, 0, 7, 7, 3]] * B)

CASES = {
    "unscaled": ({"score": "dot"}, (X,), {}),
    "causal, more keys": ({"pattern": "causal"}, (X, CONTEXT), {}),
    "causal, fewer keys": ({"pattern": "causal"}, (CONTEXT, X), {}),
    "causal, positions": ({"pattern": "causal"}, (X,), {"query_positions": PLACES}),
    "cross, padding": ({}, (X, CONTEXT), {"value_mask": ENDS}),
    "causal, padding": ({"pattern": "causal"}, (X,), {"value_mask": STARTS}),
    "pairs": ({}, (X, CONTEXT), {"attention_mask": PAIRS, "value_mask": ENDS}),
    "per head": ({"pattern": PerHead([Causal(), Local(2, causal=False)])}, (X,), {}),
    "shared keys": ({"pattern": "causal", "num_key_value_heads": 1}, (X,), {}),
    "packed rows": ({}, (X,), {"segment_ids": SEGMENTS}),
}


@pytest.fixture
def kernel(monkeypatch):
    """Notes each use of the kernel, which takes anything."""
    uses = []

    def noted(*tensors, original=ops.dot_product_attention, **arguments):
        uses.append(arguments)
        return original(*tensors, **arguments)

    monkeypatch.setattr(fused, "IS_POSSIBLE", True)
    monkeypatch.setattr(fused, "has_fused_attention", lambda *tensors: True)
    monkeypatch.setattr(ops, "dot_product_attention", noted)
    return uses


def built(shapes=((B, T, D),), **arguments):
    layer = MultiHeadAttention(N, H, **arguments)
    layer.build(shapes[0], shapes[-1])
    oracles.scramble(layer)
    return layer


def with_gradients(layer, inputs, call):
    """The output, and the gradients of a weighted sum of it by inputs and weights."""

    def attend(*inputs):
        return layer(*(inputs * 2)[:2], **call)

    def weighted(*inputs):
        return ops.sum(attend(*inputs) * ops.cos(ops.arange(D, dtype="float32")))

    return attend(*inputs), *compute_gradients(weighted, inputs, layer.trainable_variables)


FAST = ("packed rows", "causal, more keys", "pairs")


@pytest.mark.parametrize("case", slow_but(FAST, CASES))
def test_the_kernel_gives_what_the_matrix_gives(case, kernel):
    arguments, inputs, call = CASES[case]
    shapes = [x.shape for x in inputs]
    results = []
    for plan in ("auto", "dense"):
        layer = built(shapes, implementation=plan, **arguments)
        results.append([oracles.numpy_of(x) for x in with_gradients(layer, inputs, call)])
        assert len(kernel) == 2  # by "auto", not by "dense"
    oracles.check_each(*results, atol=1e-5, scaled=True)


def test_causality_needs_no_mask_where_queries_and_keys_stand_together(kernel):
    layer = built(pattern="causal")
    layer(X, X)
    layer(X, CONTEXT)
    layer(X, X, value_mask=STARTS)
    assert [use["is_causal"] for use in kernel] == [True, False, True]
    # The kernel wants a mask of all pairs.
    shapes = [None if use["mask"] is None else tuple(use["mask"].shape) for use in kernel]
    assert shapes == [None, (1, 1, T, S), (B, 1, T, T)]


def test_a_query_without_a_key_gets_zero_and_gives_no_gradient(kernel):
    layer = built([X.shape, CONTEXT.shape], use_bias=False)
    output, query, value, *_ = with_gradients(layer, (X, CONTEXT), {"value_mask": ENDS})
    assert kernel
    for x in (output, query, value):
        np.testing.assert_array_equal(oracles.numpy_of(x)[2], 0.0)
        assert np.any(oracles.numpy_of(x)[1] != 0.0)


def test_scores_do_not_change_the_output(kernel):
    layer = built(pattern="causal", dtype="mixed_bfloat16")
    output, scores = layer(X, X, return_attention_scores=True)
    np.testing.assert_array_equal(oracles.numpy_of(output), oracles.numpy_of(layer(X, X)))
    assert len(kernel) == 2
    _, expected = built(pattern="causal", dtype="mixed_bfloat16", implementation="dense")(
        X, X, return_attention_scores=True
    )
    np.testing.assert_array_equal(oracles.numpy_of(scores), oracles.numpy_of(expected))


class Doubled(DotProduct):
    """A score of somebody's own."""

    def __call__(self, query, key, **positions):
        return 2 * super().__call__(query, key, **positions)


@pytest.mark.parametrize(
    "arguments, call",
    [
        ({"score": "relative", "pattern": "causal"}, {}),
        ({"dropout": 0.5}, {"training": True}),
        ({"implementation": "dense"}, {}),
        slow({"score": Doubled()}, {}),
        slow({"pattern": AdaptiveSpan(4)}, {}),
        slow({"implementation": "blockwise"}, {}),
    ],
    ids=str,
)
def test_arguments_that_the_kernel_does_not_support_take_another_plan(arguments, call, kernel):
    built(**arguments)(X, X, **call)
    assert not kernel


def test_a_cache_is_read_by_the_matrix(kernel):
    layer = built()
    layer(X, None, cache=layer.context_cache(ops.convert_to_tensor(CONTEXT)))
    assert not kernel


def test_keras_flag_disables_the_kernel(kernel, monkeypatch):
    monkeypatch.setattr(keras.config, "is_flash_attention_enabled", lambda: False)
    built()(X, X)
    assert not kernel


@pytest.mark.slow
def test_a_plan_stays_where_it_leaves_out_more_or_needs_no_mask(kernel, monkeypatch):
    monkeypatch.setattr(multi_head_attention, "SHORTEST_BLOCKWISE", 0)
    for plan in (Plan, AllKeys):
        monkeypatch.setattr(plan, "is_faster", lambda *lengths: True)
    built(pattern=Local(3))(X, X)
    assert not kernel
    layers = [built(pattern=pattern) for pattern in (Dense(), Causal())]
    can_fuse = fused.can_fuse
    for uses, pairs in ((4, B * T * T + 1), (2, B * T * T)):
        limited = functools.partial(can_fuse, many_pairs=pairs)
        monkeypatch.setattr(fused, "can_fuse", limited)
        for layer in layers:
            layer(X, X)
            layer(X, X, value_mask=STARTS)
        assert len(kernel) == uses
        kernel.clear()
