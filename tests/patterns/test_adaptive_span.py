import math

import numpy as np
import oracles
import pytest
import tensorflow as tf
from marks import slow

from keras_attn.attention.inputs import AttentionInputs, PositionRange, TileSizes
from keras_attn.attention.plans import BlockLocal
from keras_attn.attention.softmax import attend_logits
from keras_attn.patterns import AdaptiveSpan, Local
from keras_attn.scores import DotProduct

B, N, H, HV, D = 2, 3, 4, 5, 8
MAX_SPAN, RAMP = 24, 4


# Few positions make many tiles, and few keys are a short span.
TILES = TileSizes(chunk_scores=1, block_scores=700, least_window=6, most_block=4)


def built(parts=None, ramp=RAMP, max_span=MAX_SPAN, **keywords):
    """With the given spans of the heads as parts of `max_span`."""
    pattern = AdaptiveSpan(max_span, ramp, **keywords)
    pattern.build((None, N, None, H), (None, None, D))
    if pattern.dynamic:
        oracles.scramble(pattern, scale=0.5)
        pattern.bias.assign([-3.0, -2.0, -1.0])
    elif parts is not None:
        pattern.span.assign(parts)
    return pattern


def spans_of(pattern, inputs):
    """z (B, N, T) by loops."""
    spans = np.zeros((B, N, inputs.shape[1]))
    for b, n, t in np.ndindex(spans.shape):
        part = pattern.span.numpy()[n] if not pattern.dynamic else None
        if pattern.dynamic:
            kernel, bias = oracles.numpy_of(pattern.kernel), oracles.numpy_of(pattern.bias)
            part = 1 / (1 + math.exp(-(inputs[b, t] @ kernel[:, n] + bias[n])))
        spans[b, n, t] = pattern.max_span * part
    return spans


def formula(pattern, query, key, value, spans, real=None):
    """Softmax first, then the soft mask and a division by the sum, as the paper writes it."""
    length, num_keys = query.shape[2], key.shape[2]
    output = np.zeros((*query.shape[:3], value.shape[3]))
    weights = np.zeros((*query.shape[:3], num_keys))
    for b, n, t in np.ndindex(query.shape[:3]):
        i = num_keys - length + t
        for j in range(num_keys):
            x = i - j if pattern.include_self else i - j - 1
            if not 0 <= x < pattern.max_span or real is not None and not real[b, 0, j]:
                continue
            soft = (pattern.ramp + spans[b, n, t] - x) / pattern.ramp
            likeness = math.exp(query[b, n, t] @ key[b, n, j] / math.sqrt(query.shape[3]))
            weights[b, n, t, j] = min(max(soft, 0.0), 1.0) * likeness
        if weights[b, n, t].sum() > 0:
            weights[b, n, t] /= weights[b, n, t].sum()
        output[b, n, t] = weights[b, n, t] @ value[b, n]
    return output, weights


def inputs_of(length, num_keys):
    shapes = (B, N, length, H), (B, N, num_keys, H), (B, N, num_keys, HV), (B, length, D)
    return [tf.constant(oracles.random(*s, seed=n)) for n, s in enumerate(shapes)]


def operands_of(query, key, value, inputs, real=None):
    length, num_keys = tf.shape(query)[2], tf.shape(key)[2]
    if query.shape[2] is not None and key.shape[2] is not None:
        length, num_keys = query.shape[2], key.shape[2]
    places = PositionRange(num_keys - length, length), PositionRange(0, num_keys)
    return AttentionInputs(
        query, key, value, *places, DotProduct(), key_mask=real, tile_sizes=TILES
    )


def by_matrix(pattern, operands, inputs=None):
    pattern = pattern.for_call(operands, inputs, None)
    mask, bias = pattern.dense_mask_and_bias(operands)
    if operands.key_mask is not None:
        mask = tf.logical_and(mask, operands.key_mask[:, :, None])
    return attend_logits(DotProduct()(operands.query, operands.key) + bias, operands.value, mask)


def by_plan(pattern, operands, inputs=None, log_weight=False):
    return pattern.for_call(operands, inputs, None).plan.attend(operands, log_weight)


SHORT, LONG = {"parts": [0.0, 0.21, 0.4]}, {"parts": [1.0, 0.3, 0.0]}
DYNAMIC_OF_OTHERS = {"dynamic": True, "include_self": False}


@pytest.mark.parametrize(
    "case, sizes",
    [
        (DYNAMIC_OF_OTHERS, (29, 29)),
        slow({"dynamic": True}, (7, 7)),
        slow({"parts": [0.0, 0.0, 0.0]}, (1, 1)),
        slow(SHORT, (29, 29)),
        slow(LONG, (29, 29)),
        slow({**SHORT, "include_self": False}, (5, 11)),
        slow({**LONG, "include_self": False}, (13, 67)),
    ],
    ids=str,
)
def test_oracle(case, sizes):
    """Both faces, with and without padding."""
    pattern, (length, num_keys) = built(**case), sizes
    tensors = inputs_of(length, num_keys)
    real = np.random.default_rng(0).random((B, 1, num_keys)) < 0.7
    real[1, :, : num_keys // 2] = False
    for padding in (None, real):
        spans = spans_of(pattern, oracles.numpy_of(tensors[3]))
        expected, weights = formula(pattern, *map(oracles.numpy_of, tensors[:3]), spans, padding)
        operands = operands_of(*tensors, None if padding is None else tf.constant(padding))
        output, matrix_weights = by_matrix(pattern, operands, tensors[3])
        np.testing.assert_allclose(output, expected, atol=1e-5)
        np.testing.assert_allclose(matrix_weights, weights, atol=1e-5)
        planned, log_weight = by_plan(pattern, operands, tensors[3], log_weight=True)
        np.testing.assert_allclose(planned, expected, atol=1e-5)
        assert np.all(planned.numpy()[weights.sum(-1) == 0] == 0)
        assert log_weight.shape == (B, N, length, 1)


def gradients(pattern, attention, tensors, real=None):
    variables = [w.value for w in pattern.weights]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        output = attention(pattern, operands_of(*tensors, real), tensors[3])[0]
        loss = tf.reduce_sum(output * tf.cos(tf.range(float(HV))))
    return output, tape.gradient(loss, [*tensors, *variables], unconnected_gradients="zero")


@pytest.mark.slow
@pytest.mark.parametrize("case", [SHORT, {"dynamic": True}], ids=str)
def test_gradients_by_finite_differences(case):
    """Of the spans' weights, by the loops in float64; of all else, plan against matrix."""
    pattern = built(**case)
    tensors = inputs_of(29, 29)
    _, plan_gradients = gradients(pattern, by_plan, tensors)
    _, wanted = gradients(pattern, by_matrix, tensors)
    oracles.check_each(plan_gradients, wanted, atol=2e-5)
    arrays = [oracles.numpy_of(x) for x in tensors]

    def loss():
        spans = spans_of(pattern, arrays[3])
        return (formula(pattern, *arrays[:3], spans)[0] * np.cos(np.arange(HV))).sum()

    step = 1e-3
    for variable, gradient in zip(pattern.weights, plan_gradients[4:], strict=True):
        before = variable.numpy()
        for place in list(np.ndindex(before.shape))[:4]:
            if not pattern.dynamic and before[place] in (0.0, 1.0):
                continue  # a bend
            losses = []
            for sign in (1, -1):
                moved = before.copy()
                moved[place] += sign * step
                variable.assign(moved)
                losses.append(loss())
            variable.assign(before)
            slope = (losses[0] - losses[1]) / (2 * step)
            np.testing.assert_allclose(gradient.numpy()[place], slope, atol=2e-2, rtol=2e-2)


def test_a_span_of_zero_can_grow():
    _, plan_gradients = gradients(built([0.0] * N), by_plan, inputs_of(13, 13))
    assert np.all(np.abs(plan_gradients[4].numpy()) > 1e-3)


# Tracing takes seconds and grows with the number of windows: one, and the whole sequence.
@pytest.mark.slow
def test_one_graph_for_every_length_and_span():
    pattern = built(dynamic=True, max_span=6)
    shapes = [(None, N, None, H), (None, N, None, H), (None, N, None, HV), (None, None, D)]
    specs = [*(tf.TensorSpec(s) for s in shapes), tf.TensorSpec((None, 1, None), tf.bool)]

    @tf.function(input_signature=specs, autograph=False)
    def run(*tensors):
        return gradients(pattern, by_plan, tensors[:4], tensors[4])

    for length, num_keys in ((1, 1), (11, 17), (61, 61)):
        tensors = inputs_of(length, num_keys)
        real = tf.constant(np.random.default_rng(0).random((B, 1, num_keys)) < 0.8)
        output, plan_gradients = run(*tensors, real)
        expected, wanted = gradients(pattern, by_matrix, tensors, real)
        np.testing.assert_allclose(output, expected, atol=1e-5)
        oracles.check_each(plan_gradients, wanted, atol=3e-5)


@pytest.mark.slow
def test_small_spans_compute_few_keys(monkeypatch):
    """One graph, in which the spans choose how far back a window reaches as it runs."""
    pattern, counts = built([0.0] * N), tf.Variable(tf.zeros(MAX_SPAN, tf.int32))
    compute = BlockLocal.attend_row

    def counted(plan, operands, log_weight=False):
        counts.scatter_nd_add([[plan.before]], [1])
        return compute(plan, operands, log_weight)

    monkeypatch.setattr(BlockLocal, "attend_row", counted)
    run = tf.function(
        lambda *tensors: by_plan(pattern, operands_of(*tensors), tensors[3])[0], autograph=False
    )
    tensors = inputs_of(61, 61)
    # Blocks of 4 for spans of at most 6, 12 and 24 keys: 2, 3 and 6 blocks before a query's own.
    for part, before in ((0.0, 2), (2 / MAX_SPAN, 2), (3 / MAX_SPAN, 3), (0.34, 6), (1.0, 6)):
        pattern.span.assign([0.0, part, 0.0])
        counts.assign(tf.zeros_like(counts))
        output = run(*tensors)
        expected, _ = by_matrix(pattern, operands_of(*tensors), tensors[3])
        np.testing.assert_allclose(output, expected, atol=1e-5)
        assert {n: c for n, c in enumerate(counts.numpy()) if c} == {before: 1}


def test_keys_per_query_is_of_the_shortest_window():
    """The cost that a graph with the default tiles has before any span grows: two short blocks."""
    least = TileSizes.least_window
    assert AdaptiveSpan(1024, ramp=4).keys_per_query(10000) == 2 * least
    assert AdaptiveSpan(1024, ramp=4).keys_per_query(least) == least
    assert AdaptiveSpan(1024, ramp=least + 8).keys_per_query(10000) == 2 * (least + 8)
    assert AdaptiveSpan(24, ramp=4).keys_per_query(1000) == 2 * 24


def test_positions_alone_allow_a_window():
    places = np.arange(61)
    truth = np.asarray(Local(MAX_SPAN).allowed(places, places))
    np.testing.assert_array_equal(built([1.0] * N).allowed(places, places), truth)


def test_no_leak():
    """What comes after a query changes no bit of its output, its span included."""
    pattern, tensors, cut = built(dynamic=True), inputs_of(40, 40), 23
    # The same longest span, from a query before the cut, in both.
    pattern.bias.assign([-3.0, -2.0, 5.0])
    pattern.kernel.assign(pattern.kernel * 0.1)
    rest = np.arange(40)[:, None] >= cut
    changed = [tf.where(rest, x + 1.5, x) for x in tensors]
    for face in (by_plan, by_matrix):
        outputs = [
            face(pattern, operands_of(*x), x[3])[0].numpy()[:, :, :cut] for x in (tensors, changed)
        ]
        np.testing.assert_array_equal(*outputs)


def test_no_key_no_attention():
    """The first query without itself, and rows of padding: zeros, and finite zero gradients."""
    pattern, tensors = built(**DYNAMIC_OF_OTHERS), inputs_of(29, 29)
    real = np.ones((B, 1, 29), bool)
    real[1] = False
    output, plan_gradients = gradients(pattern, by_plan, tensors, tf.constant(real))
    assert np.all(output[:, :, 0] == 0) and np.all(output[1] == 0)
    assert np.all(plan_gradients[0][:, :, 0] == 0)
    for gradient in plan_gradients:
        assert np.all(np.isfinite(gradient))
    for gradient in plan_gradients[:4]:
        assert np.all(gradient[1] == 0)


def test_span_summary():
    summary = built([0.0, 0.5, 0.25]).span_summary()
    np.testing.assert_allclose(summary["spans"], [0, 12, 6])
    assert (summary["mean"], summary["max"]) == (6.0, 12.0) and "queries" not in summary
    assert (summary["ramp"], summary["max_span"]) == (RAMP, MAX_SPAN)
    pattern, inputs = built(dynamic=True), oracles.random(B, 7, D)
    spans = spans_of(pattern, inputs)
    summary = pattern.span_summary(inputs)
    np.testing.assert_allclose(summary["spans"], spans.mean((0, 2)), rtol=1e-5)
    np.testing.assert_allclose(
        [summary["mean"], summary["max"]], [spans.mean(), spans.max()], rtol=1e-5
    )
    np.testing.assert_allclose(summary["queries"], np.reshape(spans, (B, -1, 7)), rtol=1e-5)


def test_the_soft_mask_is_float32():
    tensors = [tf.cast(x, "bfloat16") for x in inputs_of(9, 9)]
    for dynamic in (False, True):
        operands = operands_of(*tensors)
        pattern = built(dynamic=dynamic).for_call(operands, tensors[3], None)
        _, bias = pattern.dense_mask_and_bias(operands)
        assert bias.dtype == tf.float32


def test_a_layer_is_itself():
    """Two of the same configuration learn different spans."""
    pattern = AdaptiveSpan(5)
    assert pattern == pattern and pattern != AdaptiveSpan(5)
    assert len({pattern, AdaptiveSpan(5)}) == 2


@pytest.mark.parametrize(
    "arguments",
    [{"max_span": 0}, {"ramp": 0}, {"ramp": 1.5}, {"initial_span": 2}, {"span_loss": -1.0}],
)
def test_errors(arguments):
    ((name, value),) = arguments.items()
    with pytest.raises(ValueError, match=f"`{name}`.*{name}={value}"):
        AdaptiveSpan(**{"max_span": 5, **arguments})


def test_a_dynamic_span_needs_queries():
    pattern = AdaptiveSpan(5, dynamic=True)
    with pytest.raises(ValueError, match="dynamic span without queries.*inputs=None"):
        pattern.build((None, N, None, H))
    pattern = built(dynamic=True)
    *tensors, _ = inputs_of(4, 4)
    for ask in (by_plan, by_matrix):
        with pytest.raises(ValueError, match="dynamic span without queries.*inputs=None"):
            ask(pattern, operands_of(*tensors, None))
    with pytest.raises(ValueError, match="dynamic span without queries.*inputs=None"):
        pattern.span_summary()


def test_it_does_not_combine():
    with pytest.raises(ValueError, match="AdaptiveSpan"):
        AdaptiveSpan(5) | Local(3)
