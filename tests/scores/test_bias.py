"""Sums of scores with biases, and caps: compared pair by pair, in every plan, in limiting cases."""

import math

import distance_scores
import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from distance_scores import KEY, QUERY, B, H, N, S, T
from keras import ops
from marks import slow

from keras_attn import scores
from keras_attn.layers import MultiHeadAttention
from keras_attn.patterns import Local, Pattern, PerHead, Strided
from keras_attn.scores import ALiBi, Bias, DotProduct, Relative, SoftCap, Sum, T5Bias


class Learned(Bias):
    """A user's own: a learned slope for each head, times log(1 + |d|)."""

    def build(self, query_shape, key_shape=None):
        self.slopes = self.add_weight((query_shape[1], 1), "ones", name="slopes")

    def of_distances(self, distances):
        return self.slopes * ops.log1p(ops.cast(ops.abs(distances), "float32"))


SCORES = {
    "alibi": lambda: DotProduct() + ALiBi(),
    "t5": lambda: DotProduct(scaled=False) + T5Bias(8, 20),
    "t5, both sides": lambda: DotProduct() + T5Bias(12, 13, bidirectional=True),
    "own": lambda: DotProduct() + Learned(),
    "cap of a sum": lambda: SoftCap(DotProduct() + T5Bias(8, 20) + ALiBi(), 1.5),
    "relative": lambda: Relative() + Learned() + ALiBi(),
}


def built(make):
    layer = make()
    layer.build_for((B, N, T, H), (B, N, S, H))
    oracles.scramble(layer, scale=0.5)
    return layer


def bias_of(term, n, d):
    """The bias of head n at distance d, from the papers."""
    if isinstance(term, ALiBi):
        return -(2.0 ** (-8 * (n + 1) / 2) if n < 2 else 2.0 ** (-8 * 1 / 4)) * abs(d)
    if isinstance(term, T5Bias):
        return oracles.numpy_of(term.table)[t5_bucket(term, -d), n]
    return float(term.slopes[n, 0]) * math.log1p(abs(d))


def t5_bucket(bias, delta):
    """The bucket of delta = j - i, by the formula with a logarithm."""
    size, first = bias.num_buckets, 0
    far = max(-delta, 0)
    if bias.bidirectional:
        size, far = size // 2, abs(delta)
        first = size if delta > 0 else 0
    exact = size // 2
    if far < exact:
        return first + far
    steps = math.log(far / exact) / math.log(bias.max_distance / exact) * (size - exact)
    return first + min(exact + int(steps + 1e-9), size - 1)


def formula(layer, query, key, i, j):
    if isinstance(layer, SoftCap):
        return layer.cap * np.tanh(formula(layer.score, query, key, i, j) / layer.cap)
    if not isinstance(layer, Sum):
        rows = [
            layer(query[b : b + 1], key[b : b + 1], query_positions=i[b], key_positions=j[b])
            for b in range(len(query))
        ]
        return np.concatenate([oracles.numpy_of(row) for row in rows]).astype("float64")
    biases = [term for term in layer.terms if isinstance(term, Bias)]
    (score,) = [term for term in layer.terms if not isinstance(term, Bias)]
    logits = formula(score, query, key, i, j)
    distances = {int(d) for d in np.unique(i[:, :, None] - j[:, None])}
    for n in range(N):
        of = {d: sum(bias_of(term, n, d) for term in biases) for d in distances}
        logits[:, n] += np.vectorize(of.get)(i[:, :, None] - j[:, None])
    return logits


@pytest.mark.parametrize("name", ["cap of a sum", slow("relative"), slow("t5, both sides")])
def test_logits_equal_the_formula_at_positions_in_any_order(name):
    distance_scores.check_positions(built(SCORES[name]), formula, atol=1e-4)


class OfPlaces(Bias):
    """A weight for each remainder of the places of a query and a key, not of their distance."""

    def build(self, query_shape, key_shape):
        self.row = self.add_weight((7,), "normal", name="row")

    def of_pairs(self, i, j):
        return ops.take(self.row, (2 * i + j) % 7)


@pytest.mark.slow
def test_each_block_has_positions_of_its_own():
    """Outputs and gradients are those of the matrix, with positions in the documents."""
    x, results, pattern = oracles.random(1, 41, 6), [], PerHead([Local(3), Strided(4)])
    documents = {"segment_ids": np.repeat([[1, 2]], [19, 22], axis=1)}
    for implementation in ("blockwise", "dense"):
        score = DotProduct() + OfPlaces()
        layer = MultiHeadAttention(2, H, score=score, pattern=pattern, dtype="float64")
        layer.implementation = implementation
        layer.build(x.shape, x.shape)
        oracles.scramble(layer)
        with tf.GradientTape() as tape:
            y = layer(x, x, **documents)
            loss = ops.sum(y * oracles.random(*y.shape))
        results.append((y, tape.gradient(loss, score.terms[1].row)))
    assert np.abs(results[0][1]).max() > 0.1
    oracles.check_each(*results, atol=1e-6)


@pytest.mark.parametrize("num_heads", [1, 6, 8, 12])
def test_slopes_of_alibi(num_heads):
    """Halving powers; beyond a power of two every other one of the next power's."""
    bias = ALiBi()
    bias.build_for((1, num_heads, 2, H), (1, num_heads, 2, H))
    below = 2 ** math.floor(math.log2(num_heads))
    slopes = {8: [2.0**-n for n in range(1, 9)], 1: [2.0**-8], 2: [2.0**-4, 2.0**-8]}
    slopes[4] = [0.25, 0.0625, 2.0**-6, 2.0**-8]
    more = {1: [2.0**-4], 2: [0.25, 2.0**-6], 4: [0.5, 0.125], 8: [2**-0.5, 2**-1.5]}
    more[8] += [2**-2.5, 2**-3.5]
    expected = [*slopes[below], *more[below]][:num_heads]
    np.testing.assert_allclose(bias.slopes, expected, rtol=1e-6)


@pytest.mark.parametrize("size, farthest, both", [(32, 128, True), (7, 50, False)])
def test_buckets_of_t5_equal_the_formula(size, farthest, both):
    bias = T5Bias(size, farthest, bidirectional=both)
    distances = np.arange(-700, 701, dtype="int32")
    expected = [t5_bucket(bias, -int(d)) for d in distances]
    np.testing.assert_array_equal(bias.buckets(distances), expected)


def test_edges_of_t5s_buckets():
    """The last bucket begins before `max_distance`, and one bucket of two sides stays empty."""
    distances = np.arange(-300, 301, dtype="int32")
    causal = np.asarray(T5Bias().buckets(distances))
    assert distances[causal == 31].min() == 113 and set(causal[distances < 0]) == {0}
    both = np.asarray(T5Bias(bidirectional=True).buckets(distances))
    assert distances[both == 15].min() == 91 and set(range(32)) - set(both) == {16}


@pytest.mark.parametrize(
    "make", [lambda: SoftCap(DotProduct(), 1e6), lambda: Sum([DotProduct()])], ids=["cap", "sum"]
)
def test_without_effect_the_score_is_a_dot_product(make):
    np.testing.assert_allclose(make()(QUERY, KEY), DotProduct()(QUERY, KEY), atol=1e-5)


def test_positions_are_subtracted_as_integers():
    """Also where float32 cannot tell neighbours apart."""
    layer, positions = built(SCORES["cap of a sum"]), np.arange(3, 3 + T, dtype="int32")
    logits = [
        layer(QUERY, KEY[:, :, :T], query_positions=positions + n, key_positions=positions + n)
        for n in (0, 2**25)
    ]
    np.testing.assert_array_equal(*logits)


def test_a_masked_key_has_no_weight_under_a_cap():
    """Capping after the mask would turn its logit into one of moderate size."""
    layer = MultiHeadAttention(N, H, score=SoftCap(DotProduct(), 1.0))
    x, real = oracles.random(B, T, N * H), np.arange(T)[None] < np.array([[3], [T]])
    _, weights = layer(x, x, value_mask=real, return_attention_scores=True)
    np.testing.assert_array_equal(weights[0, :, :, 3:], 0)


@pytest.mark.parametrize(
    "name, policy", [("cap of a sum", "mixed_bfloat16"), ("relative", "mixed_float16")]
)
def test_distances_are_exact_in_low_precision(name, policy):
    """At positions of 4,000 neighbours must differ by their slopes."""
    make = SCORES[name]
    exact, keras_policy = built(make), keras.dtype_policies.get(policy)
    keras.config.set_dtype_policy(policy)
    layer = built(make)
    keras.config.set_dtype_policy("float32")
    dtype = keras_policy.compute_dtype
    positions = {
        "query_positions": np.arange(4000, 4000 + T, dtype="int32"),
        "key_positions": np.arange(3995, 3995 + S, dtype="int32"),
    }
    query, key = (oracles.numpy_of(ops.cast(x, dtype)).astype("float32") for x in (QUERY, KEY))
    logits = layer(ops.cast(query, dtype), ops.cast(key, dtype), **positions)
    expected = np.asarray(exact(query, key, **positions))
    scale = 2.0**-5 if dtype == "bfloat16" else 2.0**-8
    np.testing.assert_allclose(oracles.numpy_of(logits), expected, atol=scale * 8)


def test_a_bias_of_ones_own_has_a_number_for_each_distance():
    class Short(Bias):
        def of_distances(self, distances):
            return ops.ones((2, 3))

    layer, x = MultiHeadAttention(2, H, score=DotProduct() + Short()), oracles.random(1, 5, 6)
    with pytest.raises(ValueError, match=r"`Short.of_distances`.*shape \(None, 10\).*\(2, 3\)"):
        layer(x, x)


@pytest.mark.parametrize(
    ("method", "shape", "sentence"),
    [
        ("of_distances", (3, 10), r"of_distances` must have shape \(2, None\).*\(3, 10\)"),
        ("of_pairs", (2, 2), r"of_pairs` must have shape \(1, 2, 5, 5\).*\(2, 2\)"),
    ],
)
def test_a_bias_of_another_shape_is_refused(method, shape, sentence):
    own = type("Own", (Bias,), {method: lambda self, *positions: ops.ones(shape)})
    layer, x = MultiHeadAttention(2, H, score=DotProduct() + own()), oracles.random(1, 5, 6)
    with pytest.raises(ValueError, match=sentence):
        layer(x, x)


def test_positions_of_pairs_broadcast_as_those_of_a_pattern():
    """One rule serves both, of positions in one row, in a batch, and by head."""

    def rule(self, i, j):
        return (i == j) | ((3 * i + 5 * j) % 7 < 4)

    own = type("Own", (Bias,), {"of_pairs": lambda *a: ops.where(rule(*a), 0.0, -1e9)})
    pattern = type("Rule", (Pattern,), {"mask_mod": rule})()
    layer = MultiHeadAttention(2, H, score=DotProduct() + own())
    plain = MultiHeadAttention(2, H, pattern=pattern)
    x = oracles.random(3, 5, 6)
    plain.build(x.shape, x.shape)
    layer.build(x.shape, x.shape)
    layer.set_weights(plain.get_weights())
    positions = np.random.default_rng(0).permuted(np.tile(np.arange(11), (3, 1)), axis=1)[:, :5]
    for of_rows in ({}, {"query_positions": positions, "key_positions": positions}):
        np.testing.assert_allclose(layer(x, x, **of_rows), plain(x, x, **of_rows), atol=1e-5)


def test_positions_with_new_axes_are_refused():
    """Those of version 0.2.0 lacked the axes."""
    own = {"of_pairs": lambda self, i, j: i[..., :, None] - j[..., None, :]}
    score, x = DotProduct() + type("Own", (Bias,), own)(), oracles.random(1, 5, 6)
    with pytest.raises(ValueError, match=r"such as `i - j`.*Received: shape=\(1, 1, 5, 1, 5\)"):
        MultiHeadAttention(2, H, score=score)(x, x)


def test_sums_are_flat_and_readable():
    score = sum([DotProduct(), ALiBi(), T5Bias()])
    assert repr(score) == "Sum([DotProduct(), ALiBi(), T5Bias()])"
    assert repr(DotProduct() + (ALiBi() + DotProduct()))[:20] == "Sum([DotProduct(), A"


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda: scores.get(ALiBi()), r"write DotProduct\(\) \+ ALiBi\(\)"),
        (lambda: MultiHeadAttention(2, 4, score=T5Bias()), r"write DotProduct\(\) \+ T5Bias"),
        (lambda: ALiBi() + T5Bias(), r"A bias is added to a score"),
        (lambda: Sum([DotProduct(), 3]), "`terms` must be scores and biases.*3"),
        (lambda: DotProduct() + np.ones((2, 2)), "a bias of your own is a subclass.*array"),
        (lambda: SoftCap(ALiBi(), 3.0), r"such as DotProduct\(\) \+ ALiBi\(\).*score=ALiBi"),
        (lambda: SoftCap(DotProduct(), 0), "`cap` must be a number above 0.*cap=0"),
        (lambda: SoftCap(DotProduct(), np.nan), "`cap` must be a number above 0|finite"),
        (lambda: T5Bias(1), "`num_buckets`.*num_buckets=1"),
        (lambda: T5Bias(32, 16), "`max_distance` must be an integer of at least 17.*16"),
    ],
)
def test_invalid_arguments_raise(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
