"""A text read segment by segment: contents of the memory, and outputs of blocks."""

import functools

import keras
import numpy as np
import oracles
import pytest
import segments
import tensorflow as tf
from marks import all_slow, slow
from segments import B, D, L, T, X, built, run, same_cuts, state_of

from keras_attn.depth import Stack
from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
from keras_attn.memory import Memory, SegmentMemory
from keras_attn.patterns import AdaptiveSpan, Local, PerHead, Strided

# Rows that are cut differently; one has no token at all in some segments.
RAGGED = np.array([[4, 1, 0, 6], [2, 2, 5, 2], [0, 7, 1, 3]])


@functools.cache
def shared(residual):
    return built(residual)


@pytest.mark.parametrize("residual, memory_length", [("post", 3), slow("pre", 1)])
def test_output_equals_the_formula(residual, memory_length):
    output, _ = run(shared(residual), X, RAGGED, memory_length)
    expected = segments.oracle(shared(residual), X, RAGGED, memory_length, residual == "pre")
    np.testing.assert_allclose(output, expected, atol=1e-4)


@pytest.mark.parametrize(
    "pattern, memory_length, plan",
    [
        (lambda: Local(4), 3, "blockwise"),
        *all_slow(
            (
                (lambda: PerHead([Local(3), Strided(2, "column")] * 2), T, "blockwise"),
                (lambda: AdaptiveSpan(5, ramp=2, dynamic=True), 4, "blockwise"),
            )
        ),
    ],
    ids=["local", "per head", "dynamic span"],
)
def test_memory_as_long_as_the_pattern_equals_one_pass(pattern, memory_length, plan):
    """Blocks at fixed positions need memories and segments of whole blocks."""
    stack = built(pattern=pattern(), implementation=plan, layers=2)
    output, _ = run(stack, X, same_cuts([4, 4, 3]), memory_length, masked=False)
    np.testing.assert_allclose(output, stack(X), atol=2e-4)


def test_memory_without_a_length_counts_as_full():
    stack = built(layers=1)
    output, _ = stack(X[:, 4:], memory=X[:, None, :4])
    np.testing.assert_allclose(output, stack(X)[:, 4:], atol=1e-5)


def test_empty_memory_equals_no_memory():
    """Whatever the model keeps later."""
    stack, memory = shared("post"), SegmentMemory(5)
    nothing = state_of(np.zeros((B, L, 0, D), "float32"), [0] * B)
    output, read = stack(X, **nothing)
    np.testing.assert_allclose(output, stack(X), atol=1e-6)
    state = memory.extend(nothing, read)
    same = memory.extend(memory.initial(B, L, D), read)
    np.testing.assert_array_equal(state["memory"], same["memory"])
    np.testing.assert_array_equal(state["memory_length"], [5] * B)


def test_empty_slots_have_no_influence():
    """Large numbers and none at all: bit-equal, and equal to no memory."""
    stack = shared("post")
    _, state = run(stack, X, RAGGED, 6)
    filled = np.array([0, 2, 6])
    empty = np.arange(6) < 6 - filled[:, None]
    outputs = []
    for garbage in (1e3, np.nan):
        memory = np.where(empty[:, None, :, None], garbage, state["memory"]).astype("float32")
        outputs.append(np.asarray(stack(X, **state_of(memory, filled))[0]))
    for output in outputs[1:]:
        np.testing.assert_array_equal(output, outputs[0])
    np.testing.assert_allclose(outputs[0][0], stack(X)[0], atol=1e-5)
    assert np.abs(outputs[0][1:] - np.asarray(stack(X))[1:]).max() > 0.02


def test_padding_has_no_influence():
    """What a segment is padded with is neither attended nor remembered."""
    stack, memory = shared("post"), SegmentMemory(6)
    _, state = run(stack, X, RAGGED, 6)
    real = np.arange(T) < np.array([[5], [11], [0]])
    results = []
    for garbage in (0.0, 1e3):
        x = np.where(real[..., None], X, garbage).astype("float32")
        output, read = stack(x, padding_mask=real, **state)
        after = memory.extend(state, read, real)
        assert after["memory_length"].numpy().tolist() == [6, 6, 6]
        results.append((np.asarray(output)[real], np.asarray(after["memory"])))
    for before, after in zip(*results, strict=True):
        np.testing.assert_array_equal(after, before)
    np.testing.assert_array_equal(results[0][1][2], state["memory"][2])


def test_masked_positions_leave_no_gaps_in_the_memory():
    memory, hidden = SegmentMemory(4), oracles.random(2, 1, 5, 3)
    real = np.array([[0, 1, 0, 1, 1], [1, 0, 0, 0, 0]], bool)
    state = memory.extend(memory.initial(2, 1, 3), hidden, real)
    assert state["memory_length"].numpy().tolist() == [3, 1]
    np.testing.assert_array_equal(state["memory"][0, 0, 1:], hidden[0, 0, [1, 3, 4]])
    np.testing.assert_array_equal(state["memory"][1, 0, 3:], hidden[1, 0, [0]])


def test_reset_separates_episodes_of_one_row():
    """The first row goes on where the second begins anew."""
    stack, memory = shared("post"), SegmentMemory(5)
    one, two = X[:1], X[1:2]
    together = np.concatenate([one, two])
    output, read = stack(together[:, :4], **memory.initial(2, L, D))
    state = memory.reset(memory.extend(memory.initial(2, L, D), read), np.array([False, True]))
    output, _ = stack(together[:, 4:], **state)
    np.testing.assert_allclose(
        output[:1], run(stack, one, np.array([[4, 7]]), 5)[0][:, 4:], atol=1e-5
    )
    np.testing.assert_allclose(output[1:], stack(two[:, 4:]), atol=1e-5)


def test_gradients_stop_at_segments():
    stack, memory = shared("post"), SegmentMemory(6)
    first, second = tf.constant(X[:, :4]), tf.constant(X[:, 4:])
    with tf.GradientTape() as tape:
        tape.watch([first, second])
        _, read = stack(first, **memory.initial(B, L, D))
        output, _ = stack(second, **memory.extend(memory.initial(B, L, D), read))
        loss = tf.reduce_sum(output * oracles.random(*output.shape))
    crossing, within = tape.gradient(loss, [first, second])
    assert crossing is None
    assert np.abs(within).max() > 0.01


@pytest.mark.slow
def test_weights_learn_from_the_memory():
    """With the segment's own keys forbidden, those of the memory are all there is to learn from."""
    stack, memory_length = built(layers=1), 6
    _, state = run(stack, X, RAGGED, memory_length)
    kernel = stack.blocks[0].attention.key_kernel

    def loss():
        allowed = np.arange(memory_length + T) < memory_length
        output, _ = stack(X, attention_mask=np.tile(allowed, (T, 1)), **state)
        return tf.reduce_sum(output * oracles.random(*output.shape))

    with tf.GradientTape() as tape:
        value = loss()
    gradient = np.asarray(tape.gradient(value, kernel.value))
    direction = oracles.random(*kernel.shape, scale=1e-2)
    before = kernel.numpy()
    slopes = []
    for sign in (1, -1):
        kernel.assign(before + sign * direction)
        slopes.append(float(loss()))
    slope = (slopes[0] - slopes[1]) / 2
    assert abs(slope) > 1e-3
    np.testing.assert_allclose(np.sum(gradient * direction), slope, rtol=2e-2)


@pytest.mark.slow
def test_remat_keeps_memory_and_output():
    """The gradient, too, is that of blocks whose results are kept."""
    plain = shared("pre")
    remat = Stack.from_config({**plain.get_config(), "remat": True})
    remat.build(X.shape)
    remat.set_weights(plain.get_weights())
    _, state = run(plain, X, RAGGED, 6)
    results = []
    for stack in (plain, remat):
        with tf.GradientTape() as tape:
            output, read = stack(X, **state)
            loss = tf.reduce_sum(output * oracles.random(*output.shape))
        gradients = tape.gradient(loss, [w.value for w in stack.trainable_weights])
        results.append([output, read, *gradients])
    oracles.check_each(results[1], results[0], atol=1e-4)


@pytest.mark.slow
def test_scores_cover_the_memory():
    stack = shared("pre")
    _, state = run(stack, X, RAGGED, 6)
    output, scores, _ = stack(X, **state, return_attention_scores=True)
    np.testing.assert_array_equal(output, stack(X, **state)[0])
    weights = np.asarray(scores[0]["attention"])
    assert weights.shape == (B, segments.N, T, 6 + T)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)


@pytest.mark.slow
def test_one_trace_serves_a_whole_text():
    stack, memory, traces = shared("post"), SegmentMemory(6), []

    @tf.function(jit_compile=True, autograph=False)
    def step(x, real, state):
        traces.append(1)
        output, read = stack(x, padding_mask=real, **state)
        return output, memory.extend(state, read, real)

    counts = np.array([[3, 3, 3, 2], [3, 2, 3, 3], [2, 3, 3, 3]])
    state, outputs = memory.initial(B, L, D), []
    for x, real in segments.spread(X, counts):
        output, state = step(tf.constant(x), tf.constant(real), state)
        outputs.append(output)
    assert len(traces) == 1
    expected = segments.oracle(stack, X, counts, 6, pre_norm=False)
    np.testing.assert_allclose(segments.gather(outputs, counts), expected, atol=1e-4)


@pytest.mark.slow
def test_cross_attention_works_with_a_memory():
    """A decoder's block: the memory is for its self-attention alone."""
    block = TransformerBlock(
        MultiHeadAttention(2, 3, pattern="causal", score="relative"),
        FeedForward(7),
        cross_attention=MultiHeadAttention(2, 5),
    )
    context = oracles.random(B, 4, 5)
    block.build(X.shape, context.shape)
    oracles.scramble(block)
    output = block(X[:, 4:], context, memory=X[:, :4])
    np.testing.assert_allclose(output, block(X, context)[:, 4:], atol=1e-5)


def test_value():
    memory = SegmentMemory(7)
    assert memory != SegmentMemory(8) and repr(memory) == "SegmentMemory(7)"
    state = memory.initial(2, 3, 5, "bfloat16")
    assert state["memory"].shape == (2, 3, 7, 5) and state["memory"].dtype == "bfloat16"
    assert state["memory_length"].numpy().tolist() == [0, 0]


@pytest.mark.parametrize("memory_length", [-1, 2.5, None])
def test_invalid_memories_raise(memory_length):
    with pytest.raises(ValueError, match=f"`memory_length`.*memory_length={memory_length}"):
        SegmentMemory(memory_length)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"memory": np.zeros((B, L + 1, 5, D))}, r"`memory` must have shape \(3, 2, None, 6\)"),
        ({"memory": np.zeros((B, L, 5, D + 1))}, "`memory` must have shape"),
        ({"memory": np.zeros((B + 1, L, 5, D))}, "`memory` must have shape"),
        (
            {"memory": np.zeros((B, L, 5, D)), "memory_length": np.zeros(2, "int32")},
            r"`memory_length` must have shape \(3,\)",
        ),
    ],
)
def test_invalid_calls_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        shared("post")(X, **arguments)


def test_memory_together_with_cache_raises():
    stack = shared("post")
    with pytest.raises(ValueError, match="not both"):
        stack(X, memory=np.zeros((B, L, 5, D)), cache=stack.initial_cache(B, T))


def test_invalid_masks_and_states_raise():
    block, memory = shared("post").blocks[0], SegmentMemory(5)
    with pytest.raises(ValueError, match=r"`memory_mask` must have shape \(3, 4\)"):
        block(X, memory=X[:, :4], memory_mask=np.ones((B, 5), bool))
    with pytest.raises(ValueError, match=r"`memory` must have shape \(2, 3, None, 6\)"):
        memory.extend(memory.initial(2, 4, 6), oracles.random(2, 3, 5, 6))
    for rows in (True, [True], np.ones(3, bool)):
        with pytest.raises(ValueError, match=r"`rows` must have shape \(2,\)"):
            memory.reset(memory.initial(2, 3, 6), rows)
    with pytest.raises(ValueError, match=r"`padding_mask` must have shape \(2, 5\)"):
        memory.extend(memory.initial(2, 3, 6), oracles.random(2, 3, 5, 6), np.ones((2, 4), bool))


def test_a_memory_of_ones_own_is_known_by_its_arguments():
    @keras.saving.register_keras_serializable("test")
    class Last(Memory):
        def __init__(self, count):
            self.count = count

    saved = keras.saving.serialize_keras_object(Last(3))
    assert keras.saving.deserialize_keras_object(saved) == Last(3) != Last(5)
