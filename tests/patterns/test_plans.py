"""Every plan is its pattern's truth: forward and gradients, at any length, in every way to run.

The truth is written here from the papers' index sets, the softmax and its gradient in float64.
"""

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from index_sets import CASES, DISTINCT, NUM_HEADS, SMALL_TILES, WAYS, W, truth
from keras import ops
from marks import slow

from keras_attn.attention.inputs import AttentionInputs, PositionRange, positions_tensor
from keras_attn.ops.shapes import size
from keras_attn.scores import Additive, DotProduct, ScoreLayer

B, N, H, HV = 4, NUM_HEADS, 5, 2
PRIME = 37  # more than the least rows of a tile
LENGTHS = (1, W - 1, W, W + 1, 2 * W + 1, PRIME)


@keras.saving.register_keras_serializable("test")
class ByDistance(ScoreLayer):
    """q . k + a_n sin(i - j), which some tiles look up in a table of all distances."""

    def build(self, query_shape, key_shape=None):
        self.scale = self.add_weight((query_shape[1], 1), "ones", name="scale")

    def distance_table(self, distances):
        return self.scale * ops.sin(ops.cast(distances.tensor(), self.scale.dtype))

    def call(self, query, key, query_positions, key_positions, table=None, distances=None):
        i, j = positions_tensor(query_positions), positions_tensor(key_positions)
        distance = i[..., :, None] - j[..., None, :]
        if table is not None:
            places = (distance - distances.start) // distances.step
            bias = ops.take(table, places, axis=1)
        else:
            bias = self.scale[:, :, None] * ops.sin(ops.cast(distance, query.dtype))
        return ops.matmul(query, ops.swapaxes(key, 2, 3)) + bias


def make_score(name):
    """A score with random weights, and its formula: logits, and what goes back from theirs."""
    if name in ("scaled_dot", "dot"):
        scale = H**-0.5 if name == "scaled_dot" else 1.0

        def formula(q, k, distance):
            def back(d):
                return scale * d @ k, scale * d.swapaxes(2, 3) @ q

            return scale * q @ k.swapaxes(2, 3), back

        return DotProduct(scaled=name == "scaled_dot"), formula
    score = Additive(units=3) if name == "additive" else ByDistance()
    score.build((B, N, PRIME, H), (B, N, PRIME, H))
    oracles.scramble(score, scale=0.7)
    weights = [oracles.numpy_of(weight) for weight in score.weights]

    def additive(q, k, distance):
        query_kernel, key_kernel, bias, output = weights
        hidden = (q @ query_kernel + bias[:, None])[:, :, :, None] + (k @ key_kernel)[:, :, None]
        hidden = np.tanh(hidden)

        def back(d):
            inner = d[..., None] * output[:, None, None] * (1 - hidden**2)
            to_query, to_key = inner.sum(3), inner.sum(2)
            return (
                to_query @ query_kernel.swapaxes(1, 2),
                to_key @ key_kernel.swapaxes(1, 2),
                np.einsum("bnth,bnta->nha", q, to_query),
                np.einsum("bnsh,bnsa->nha", k, to_key),
                to_query.sum((0, 2)),
                np.einsum("bnts,bntsa->na", d, hidden),
            )

        return np.einsum("bntsa,na->bnts", hidden, output), back

    def by_distance(q, k, distance):
        (scale,) = weights

        def back(d):
            return d @ k, d.swapaxes(2, 3) @ q, (d * np.sin(distance)).sum((0, 2, 3))[:, None]

        return q @ k.swapaxes(2, 3) + scale[:, :, None] * np.sin(distance), back

    return score, additive if name == "additive" else by_distance


def expected(allowed, formula, query, key, value, upstream):
    """Output and gradients of sum(output * upstream), in float64."""
    query, key, value, upstream = (x.astype("float64") for x in (query, key, value, upstream))
    length, num_keys = query.shape[2], key.shape[2]
    distance = np.arange(num_keys - length, num_keys)[:, None] - np.arange(num_keys)
    logits, back = formula(query, key, distance)
    top = np.max(np.where(allowed, logits, -1e300), axis=-1, keepdims=True)
    weights = np.exp(np.where(allowed, logits - top, -np.inf))
    weights /= np.maximum(weights.sum(-1, keepdims=True), 1e-300)
    to_weights = upstream @ value.swapaxes(2, 3)
    to_logits = weights * (to_weights - (to_weights * weights).sum(-1, keepdims=True))
    to_query, to_key, *to_score = back(to_logits)
    return [weights @ value, to_query, to_key, weights.swapaxes(2, 3) @ upstream, *to_score]


def plan_of(pattern, score, **more):
    """A function of tensors that gives what `expected` does, by the pattern's plan."""
    weights = [weight.value for weight in getattr(score, "weights", [])]

    def run(query, key, value, upstream, real=None):
        length, num_keys = size(query, 2), size(key, 2)
        places = PositionRange(num_keys - length, length), PositionRange(0, num_keys)
        with tf.GradientTape() as tape:
            tape.watch([query, key, value])
            inputs = AttentionInputs(
                *(query, key, value, *places, score), key_mask=real, tile_sizes=SMALL_TILES, **more
            )
            output, _ = pattern.plan.attend(inputs)
            loss = tf.reduce_sum(output * upstream)
        sources = [query, key, value, *weights]
        return output, *tape.gradient(loss, sources, unconnected_gradients="zero")

    return run


def inputs(length, num_keys, dtype="float32", seed=0):
    """Query, key, value and upstream gradient."""
    shapes = (B, N, length, H), (B, N, num_keys, H), (B, N, num_keys, HV), (B, N, length, HV)
    return [tf.cast(oracles.random(*s, seed=seed + n), dtype) for n, s in enumerate(shapes)]


def padding(num_keys):
    """Rows of a batch without padding, padded behind, with holes, and of padding alone."""
    real = np.ones((B, num_keys), bool)
    real[1, -(-num_keys // 2) :] = False
    real[2] = np.random.default_rng(num_keys).random(num_keys) < 0.6
    real[3] = False
    return real


def check(run, sets, formula, length, num_keys, padded, atol=1e-5, dtype="float32"):
    tensors, allowed = inputs(length, num_keys, dtype), truth(sets, length, num_keys)[None]
    if padded:
        real = padding(num_keys)
        allowed = allowed & real[:, None, None]
        tensors.append(tf.constant(real[:, None]))
    results = [oracles.numpy_of(x) for x in run(*tensors)]
    wanted = expected(allowed, formula, *(oracles.numpy_of(x) for x in tensors[:4]))
    names = ("output", "query", "key", "value", *("weights" for _ in wanted[4:]))
    for name, x, y in zip(names, results, wanted, strict=True):
        scale = max(1.0, np.abs(y).max())
        np.testing.assert_allclose(x / scale, y / scale, atol=atol, rtol=0, err_msg=name)
    empty = ~np.broadcast_to(allowed.any(-1), (B, N, length))
    for result in results[:2]:
        assert np.all(result[empty] == 0)


# Each way of cutting and merging; every other pattern and every other length once.
FAST = [
    ("causal", PRIME, "by_distance"),
    ("block of an image", PRIME, "dot"),
    ("strided", PRIME, "additive"),
    ("strided column", PRIME, "dot"),
    ("fixed", PRIME, "by_distance"),
    ("nested", PRIME, "by_distance"),
]
OTHERS = [case for case in DISTINCT if case not in {name for name, *_ in FAST}]
SCORES = ("scaled_dot", "by_distance", "additive", "by_distance", "dot")
EAGER = FAST + [slow(case, PRIME, SCORES[number % 5]) for number, case in enumerate(OTHERS)]
EAGER += [
    slow(case, length, SCORES[number])
    for number, (case, length) in enumerate(zip(WAYS[2:], LENGTHS[:5], strict=True))
]


@pytest.mark.parametrize("case, length, score", EAGER)
def test_eager(case, length, score):
    pattern, sets = CASES[case]
    score, formula = make_score(score)
    longer, padded = (W + 2, False) if LENGTHS.index(length) % 2 else (0, True)
    check(plan_of(pattern, score), sets, formula, length, length + longer, padded, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["causal", "block of an image"])
def test_one_graph_for_every_batch_and_length(case):
    pattern, sets = CASES[case]
    score, formula = make_score("by_distance" if case == "causal" else "scaled_dot")
    tensors = [tf.TensorSpec([None, N, None, h]) for h in (H, H, HV, HV)]
    real = tf.TensorSpec([None, 1, None], tf.bool)
    run = tf.function(plan_of(pattern, score), [*tensors, real], autograph=False)
    for length, ahead in zip(LENGTHS, (W, 1, 0, W, 1, 0), strict=True):
        check(run, sets, formula, length, length + ahead, padded=True, atol=2e-5)


@pytest.mark.slow
def test_xla():
    pattern, sets = CASES["strided"]
    score, formula = make_score("scaled_dot")
    run = tf.function(plan_of(pattern, score), jit_compile=True, autograph=False)
    check(run, sets, formula, PRIME, PRIME, padded=True, atol=2e-5)


def test_half_precision():
    pattern, sets = CASES["nested"]
    score, formula = make_score("scaled_dot")
    run = plan_of(pattern, score)
    check(run, sets, formula, PRIME, PRIME, padded=True, atol=2e-2, dtype="bfloat16")
