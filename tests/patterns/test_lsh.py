"""LSH against the sets of keys that the paper defines, given the buckets."""

import numpy as np
import oracles
import pytest
import tensorflow as tf
from marks import slow

from keras_attn.attention.inputs import AttentionInputs, PositionRange, TileSizes
from keras_attn.attention.softmax import FORBIDDEN, attend_logits
from keras_attn.patterns import LSH, Causal, PerHead
from keras_attn.scores import DotProduct, SharedQK

B, N, H, HV, CHUNK = 2, 2, 5, 3, 4
WRAPPED = dict(num_rounds=2, across_buckets=True, wrap=True)
MANY_TILES = TileSizes(block_scores=2 * B * N * CHUNK * 2 * CHUNK)


def tensors(length, seed=0):
    query = oracles.random(B, N, length, H, seed=seed, scale=3.0)
    return query, oracles.random(B, N, length, HV, seed=seed + 1)


def padding(length):
    real = np.random.default_rng(length).random((B, 1, length)) < 0.7
    real[1] = False  # a row of padding only
    return real


def operands_of(query, value, real=None, **more):
    query, value = tf.convert_to_tensor(query), tf.convert_to_tensor(value)
    here = PositionRange(0, query.shape[2] if query.shape[2] else tf.shape(query)[2])
    arguments = query, query, value, here, here, SharedQK()
    return AttentionInputs(*arguments, key_mask=real, tile_sizes=MANY_TILES, **more)


def plan(pattern, query, value, real=None, **more):
    return pattern.plan.attend(operands_of(query, value, real, **more))[0]


def matrix(pattern, query, value, real=None, **more):
    """As `MultiHeadAttention` computes what a pattern's matrix says."""
    operands = operands_of(query, value, real, **more)
    mask, bias = pattern.dense_mask_and_bias(operands)
    if real is not None:
        mask = tf.logical_and(mask, real[:, :, None])
    logits = tf.cast(operands.score(operands.query, operands.key), "float32") + bias
    drop = operands.dropout(operands.seed)
    return attend_logits(logits, operands.value, mask, drop)[0]


def times_seen(buckets, pattern):
    """How many rounds show key j to query i, as a (S, S) array, from the buckets (rounds, S)."""
    length = buckets.shape[1]
    chunks = []
    for row in buckets:
        order = sorted(range(length), key=lambda position: (row[position], position))
        chunks.append({position: place // CHUNK for place, position in enumerate(order)})
    last = (length - 1) // CHUNK
    seen = np.zeros((length, length), int)
    for r, i, j in np.ndindex(len(buckets), length, length):
        if pattern.across_buckets or buckets[r, i] == buckets[r, j]:
            seen[i, j] += chunks[r][j] in (chunks[r][i], chunks[r][i] - 1)
        if pattern.wrap:
            seen[i, j] += chunks[r][i] == 0 and chunks[r - 1][j] == last
    return seen


def truth(pattern, query, value, real=None):
    """One softmax over what any round shows; the query's own key only if that is all there is."""
    buckets = pattern.buckets(operands_of(query, value, real)).numpy()
    real = np.ones((B, 1, query.shape[2]), bool) if real is None else real
    output = np.zeros(value.shape)
    for b, n in np.ndindex(B, N):
        seen = times_seen(buckets[b, n], pattern)
        for i in range(query.shape[2]):
            keys = [j for j in range(query.shape[2]) if seen[i, j] and real[b, 0, j] and j != i]
            keys = [j for j in keys if j < i or not pattern.causal]
            if not keys and real[b, 0, i]:
                keys = [i]
            q, weights = query[b, n, i].astype("float64"), []
            for j in keys:
                k = query[b, n, j].astype("float64")
                weight = np.exp(oracles.scaled_dot(q, k) / np.linalg.norm(k))
                weights.append(weight * (seen[i, j] if pattern.wrap and j != i else 1))
            for j, weight in zip(keys, weights, strict=True):
                output[b, n, i] += weight / sum(weights) * value[b, n, j]
    return output


@pytest.mark.parametrize(
    "arguments, length, padded",
    [
        (dict(num_rounds=3, across_buckets=True), 13, True),
        slow(dict(), 1, False),
        slow(dict(num_rounds=3, causal=False, num_buckets=2), CHUNK - 1, True),
        slow(dict(causal=False), CHUNK + 1, False),
        slow(dict(num_rounds=3), 2 * CHUNK + 1, True),
        slow(WRAPPED, 37, True),
    ],
    ids=str,
)
def test_plan_and_matrix_are_the_truth(arguments, length, padded):
    pattern = LSH(CHUNK, **arguments)
    query, value = tensors(length)
    real = padding(length) if padded else None
    expected = truth(pattern, query, value, real)
    upstream = oracles.random(B, N, length, HV, seed=9)
    gradients = []
    for way in (plan, matrix):
        q, v = tf.constant(query), tf.constant(value)
        with tf.GradientTape() as tape:
            tape.watch([q, v])
            output = way(pattern, q, v, real)
            total = tf.reduce_sum(output * upstream)
        np.testing.assert_allclose(output, expected, atol=1e-5)
        way_gradients = tape.gradient(total, [q, v], unconnected_gradients="zero")
        gradients.append([x.numpy() for x in way_gradients])
    for ours, autodiff in zip(*gradients, strict=True):
        assert np.isfinite(ours).all()
        np.testing.assert_allclose(ours, autodiff, atol=1e-5)
    if padded:
        assert not any(gradient[1].any() for gradient in gradients[0])


@pytest.mark.slow
def test_gradients_in_a_graph_of_unknown_lengths():
    pattern = LSH(CHUNK, **WRAPPED)
    query, value = tensors(23)

    def step(q, v):
        with tf.GradientTape() as tape:
            tape.watch(q)
            output = plan(pattern, q, v)
            total = tf.reduce_sum(tf.square(output))
        return output, tape.gradient(total, q)

    expected = step(tf.constant(query), tf.constant(value))
    unknown = [tf.TensorSpec((None, N, None, size)) for size in (H, HV)]
    results = tf.function(step, unknown, autograph=False)(query, value)
    oracles.check_each(results, expected, atol=1e-5)


def full(query, value, causal):
    """Shared-QK attention to all others."""
    length = query.shape[2]
    allowed = np.tri(length, k=-1, dtype=bool) if causal else ~np.eye(length, dtype=bool)
    if causal:
        allowed[0, 0] = True
    logits = SharedQK()(query, query)
    return attend_logits(logits, tf.constant(value), tf.constant(allowed))[0].numpy()


@pytest.mark.slow
@pytest.mark.parametrize(
    "length, pattern",
    [
        (23, LSH(23, num_rounds=3, across_buckets=True)),
        (22, LSH(11, num_buckets=2, causal=False, across_buckets=True, wrap=True)),
    ],
    ids=["one chunk in any number of rounds", "two chunks that look at each other"],
)
def test_limits_are_full_attention(length, pattern):
    query, value = tensors(length)
    expected = full(query, value, pattern.causal)
    np.testing.assert_allclose(plan(pattern, query, value), expected, atol=1e-5)


@pytest.mark.slow
def test_padding_changes_nothing():
    pattern = LSH(CHUNK, num_buckets=8, causal=False)
    query, value = tensors(11)
    longer = [np.concatenate([x, 7 * oracles.random(*x.shape)], axis=2) for x in (query, value)]
    real = np.broadcast_to(np.arange(22) < 11, (B, 1, 22))
    for way in (plan, matrix):
        output = way(pattern, *longer, real)[:, :, :11]
        np.testing.assert_allclose(output, way(pattern, query, value), atol=1e-5)


def test_a_query_attends_to_itself_only_where_there_is_no_other_key():
    value = oracles.random(B, N, 12, HV)
    same = np.broadcast_to(oracles.random(B, N, 1, H), (B, N, 12, H)).copy()
    alone = plan(LSH(CHUNK), same, value)
    np.testing.assert_allclose(alone[:, :, 0], value[:, :, 0], atol=1e-6)
    np.testing.assert_allclose(alone[:, :, 1], value[:, :, 0], atol=1e-6)
    np.testing.assert_allclose(alone[:, :, 2], value[:, :, :2].mean(axis=2), atol=1e-6)
    real = np.ones((B, 1, 12), bool)
    real[:, :, 0] = False
    alone = plan(LSH(CHUNK), same, value, real)
    np.testing.assert_allclose(alone[:, :, 1], value[:, :, 1], atol=1e-6)
    assert not alone[:, :, 0].numpy().any()


def test_the_log_weight_is_that_of_all_rounds():
    query, value = tensors(37)
    real = padding(37)
    pattern = LSH(40, num_rounds=2, across_buckets=True)
    output, log_weight = pattern.plan.attend(operands_of(query, value, real), log_weight=True)
    assert output.shape == value.shape and log_weight.shape == (B, N, 37, 1)
    logits = SharedQK()(query, query).numpy().astype("float64")
    keys = np.flatnonzero(real[0, 0])
    for n, i in np.ndindex(N, 37):
        others = [np.exp(logits[0, n, i, j]) for j in keys if j < i]
        if others:
            assert abs(log_weight[0, n, i, 0] - np.log(sum(others))) < 1e-5
        else:
            assert log_weight[0, n, i, 0] == np.float32(-1e20 if real[0, 0, i] else FORBIDDEN)
    assert (log_weight[1].numpy() == np.float32(FORBIDDEN)).all()


@pytest.mark.slow
def test_rounds_draw_axes_from_the_seed_of_the_step_or_of_the_pattern():
    query, value = tensors(13)

    def buckets(pattern=LSH(CHUNK), **more):
        return pattern.buckets(operands_of(query, value, **more)).numpy()

    np.testing.assert_array_equal(buckets(), buckets())
    step = buckets(seed=tf.constant([1, 2]))
    np.testing.assert_array_equal(step, buckets(seed=tf.constant([1, 2])))
    for other in (buckets(LSH(CHUNK, seed=3)), step, buckets(seed=tf.constant([1, 3]))):
        assert (buckets() != other).any()
    assert (step != buckets(seed=tf.constant([1, 3]))).any()
    pattern = LSH(CHUNK, 2)
    both = [way(pattern, query, value, seed=tf.constant([5, 6])) for way in (plan, matrix)]
    np.testing.assert_allclose(*both, atol=1e-5)


@pytest.mark.slow
def test_dropout_reaches_every_weight():
    query, value = tensors(11)
    seed = tf.constant([1, 2])
    kept = plan(LSH(CHUNK, 2), query, value, seed=seed)
    doubled = plan(LSH(CHUNK, 2), query, value, seed=seed, dropout_fn=lambda w, seed: 2 * w)
    np.testing.assert_allclose(doubled, 2 * kept, atol=1e-5)


@pytest.mark.slow
def test_half_precision():
    query, value = (tf.cast(x, "float16") for x in tensors(11))
    pattern = LSH(CHUNK, 2)
    expected = plan(pattern, tf.cast(query, "float32"), tf.cast(value, "float32"))
    for way in (plan, matrix):
        output = way(pattern, query, value)
        assert output.dtype == "float16"
        np.testing.assert_allclose(tf.cast(output, "float32"), expected, atol=0.01)


@pytest.mark.slow
def test_fewer_queries_than_keys_meet_all_of_the_past_but_themselves():
    query, value = tensors(9)
    query, value = tf.constant(query), tf.constant(value)
    last, here = query[:, :, 7:], PositionRange(0, 9)
    operands = AttentionInputs(last, query, value, PositionRange(7, 2), here, SharedQK())
    mask, bias = LSH(CHUNK).dense_mask_and_bias(operands)
    output, _ = attend_logits(SharedQK()(last, query) + bias, value, mask)
    np.testing.assert_allclose(output, full(query, value, causal=True)[:, :, 7:], atol=1e-5)

    def unknown(last, query, value):
        start, length = tf.shape(query)[2] - tf.shape(last)[2], tf.shape(last)[2]
        positions = PositionRange(start, length), PositionRange(0, tf.shape(query)[2])
        mask, bias = LSH(CHUNK).dense_mask_and_bias(
            AttentionInputs(last, query, value, *positions, SharedQK())
        )
        return attend_logits(SharedQK()(last, query) + bias, value, mask)[0]

    spec = tf.TensorSpec((B, N, None, H))
    specs = [spec, spec, tf.TensorSpec((B, N, None, HV))]
    run = tf.function(unknown, specs, autograph=False)
    np.testing.assert_allclose(run(last, query, value), output, atol=1e-5)
    with pytest.raises(ValueError, match="as many as keys. Received: 2 queries, 9 keys"):
        LSH(CHUNK).plan.attend(operands)


def test_positions_alone_allow_the_past():
    here = np.arange(6)
    np.testing.assert_array_equal(LSH().allowed(here, here), Causal().allowed(here, here))
    assert np.asarray(LSH(causal=False).allowed(here, here)).all()
    assert LSH().causal and not LSH(causal=False).causal


def test_cost():
    assert LSH(64, 2).keys_per_query(16384) == 256
    assert LSH(64, 2).keys_per_query(100) == 100


@pytest.mark.parametrize(
    "arguments",
    [
        dict(chunk_length=0),
        dict(num_rounds=0),
        dict(num_buckets=3),
        dict(num_buckets=0),
        dict(num_buckets=2.0),
        dict(wrap=True),
        dict(seed=-1),
    ],
    ids=str,
)
def test_errors(arguments):
    ((name, received),) = arguments.items()
    with pytest.raises(ValueError, match=f"`{name}`.*Received: {name}={received}"):
        LSH(**arguments)


def test_another_score_is_refused():
    operands = operands_of(*tensors(5)).replace(score=DotProduct())
    for way in (LSH().plan.attend, LSH().dense_mask_and_bias):
        with pytest.raises(ValueError, match=r"'shared_qk'.*Received: score=DotProduct\("):
            way(operands)


def test_it_is_not_combined_with_others():
    for combine in (
        lambda: LSH() & Causal(),
        lambda: Causal() | LSH(),
        lambda: PerHead([LSH(), Causal()]),
    ):
        with pytest.raises(ValueError, match="function of positions alone"):
            combine()
