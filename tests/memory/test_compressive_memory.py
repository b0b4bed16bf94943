"""A memory that compresses its oldest inputs: contents, the loss of the compression, and limits."""

import json

import keras
import numpy as np
import oracles
import pytest
import segments
import tensorflow as tf
from segments import B, D, H, L, N, T

from keras_attn.layers import TokenEmbedding
from keras_attn.memory import CompressiveMemory, SegmentMemory, StatefulSegments
from keras_attn.models import CausalLanguageModel, SequenceModel

# Rows that are cut differently; one has no token at all in some segments.
RAGGED = np.array([[4, 1, 0, 6], [2, 2, 5, 2], [0, 7, 1, 3]])
HIDDEN = oracles.random(B, T, L, D)


def made(memory_length, compressed_length, rate, **arguments):
    memory = CompressiveMemory(memory_length, compressed_length, rate, **arguments)
    memory.build((None, L, None, D))
    oracles.scramble(memory)
    return memory


def compress(memory, layer, group):
    """Return the slot of a group of inputs (r, D) of a layer."""
    if memory.compression == "convolution":
        kernel, bias = memory.kernel[layer], memory.bias[layer, 0]
        kernel = oracles.numpy_of(kernel).reshape(memory.rate, D, D)
        return sum(x @ w for x, w in zip(group, kernel, strict=True)) + oracles.numpy_of(bias)
    return {"mean": np.mean, "max": np.max}[memory.compression](group, axis=0)


def expected_state(memory, counts):
    """Return what each row and layer keeps, a list, and the number of compressed slots of rows."""
    kept, numbers = [], []
    for row, lengths in zip(HIDDEN.astype("float64"), counts, strict=True):
        kept.append([])
        for layer in range(L):
            inputs, slots, start = [], [], 0
            for length in lengths:
                inputs += list(row[start : start + length, layer])
                start += length
                while len(inputs) - memory.memory_length >= memory.rate:
                    slots.append(compress(memory, layer, np.array(inputs[: memory.rate])))
                    inputs = inputs[memory.rate :]
            slots = slots[-memory.compressed_length :] if memory.compressed_length else []
            kept[-1].append(slots + inputs)
        numbers.append(len(slots))
    return kept, numbers


def read(memory, counts, hidden=HIDDEN, masked=True):
    state = memory.initial(len(hidden), L, D)
    for segment, real in segments.spread(hidden, counts):
        state = memory.extend(state, segment.swapaxes(1, 2), real if masked else None)
    return state


def check_state(memory, state, counts):
    kept, numbers = expected_state(memory, counts)
    assert state["memory"].shape == (B, L, memory.num_slots, D)
    assert state["compressed_memory_length"].numpy().tolist() == numbers
    assert state["memory_length"].numpy().tolist() == [len(row[0]) for row in kept]
    for row_memory, row in zip(state["memory"].numpy(), kept, strict=True):
        for layer, slots in enumerate(row):
            filled = row_memory[layer, memory.num_slots - len(slots) :]
            np.testing.assert_allclose(filled, np.reshape(slots, (-1, D)), atol=1e-5)


@pytest.mark.parametrize(
    "compression, sizes, counts",
    [
        *(("convolution", (3, 2, 2), RAGGED), ("mean", (1, 9, 3), RAGGED)),
        *(("max", (0, 2, 3), RAGGED), ("mean", (4, 0, 2), segments.same_cuts([5, 3, 3]))),
    ],
)
def test_state_equals_the_loop(compression, sizes, counts):
    memory = made(*sizes, compression=compression)
    check_state(memory, read(memory, counts, masked=counts is RAGGED), counts)


def test_rate_one_without_change_is_a_segment_memory():
    memory = made(3, 4, 1)
    memory.set_weights([np.tile(np.eye(D), (L, 1, 1)), np.zeros((L, 1, D))])
    plain = read(SegmentMemory(7), RAGGED)
    state = read(memory, RAGGED)
    np.testing.assert_array_equal(state["memory_length"], plain["memory_length"])
    np.testing.assert_array_equal(plain["memory_length"], [7, 7, 7])
    np.testing.assert_allclose(state["memory"], plain["memory"], atol=1e-6)


def test_empty_slots_have_no_influence():
    memory = made(3, 2, 2)
    state, hidden = read(memory, RAGGED[:, :2]), HIDDEN.swapaxes(1, 2)
    empty = np.arange(memory.num_slots) < memory.num_slots - state["memory_length"].numpy()[:, None]
    assert empty.any()
    memories = []
    for garbage in (0.0, np.nan):
        slots = np.where(empty[:, None, :, None], garbage, state["memory"]).astype("float32")
        memories.append(memory.extend({**state, "memory": slots}, hidden)["memory"])
    np.testing.assert_array_equal(*memories)


def test_a_reset_row_begins_anew():
    memory = made(3, 2, 2)
    state = memory.reset(read(memory, RAGGED), np.array([True, False, True]))
    after = memory.extend(state, HIDDEN.swapaxes(1, 2))
    fresh = read(memory, segments.same_cuts([T]))
    for row in (0, 2):
        np.testing.assert_array_equal(after["memory_length"][row], fresh["memory_length"][row])
        np.testing.assert_allclose(after["memory"][row], fresh["memory"][row], atol=1e-6)


def expected_loss(memory, stack, hidden, old, counted):
    """Return the loss by pairs of queries and keys; `old` are lists of inputs of each row."""

    def heads(block, x, name):
        norm = oracles.norm_weights(block.attention_residual.norm)
        x = oracles.layer_norm(x, *norm, segments.EPSILON)
        kernel = oracles.numpy_of(getattr(block.attention, f"{name}_kernel"))
        return oracles.project(x, kernel, np.zeros((N, H)))

    total = 0.0
    for layer, block in enumerate(stack.blocks):
        squares = []
        for row, inputs in enumerate(old):
            inputs = np.reshape(inputs[layer], (-1, D))
            if not len(inputs):
                continue
            groups = inputs.reshape(-1, memory.rate, D)
            new = np.array([compress(memory, layer, group) for group in groups])
            query = heads(block, hidden[row, layer, counted[row]], "query")
            outputs = []
            for states in (inputs, new):
                logits = query @ heads(block, states, "key").swapaxes(1, 2) / np.sqrt(H)
                weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
                outputs.append(weights @ heads(block, states, "value"))
            squares.append(np.square(outputs[0] - outputs[1]).mean(axis=(0, 2)))
        total += np.concatenate(squares).mean()
    return total


def test_the_loss_compares_attention_and_trains_the_compression_alone():
    stack, memory = segments.built("pre"), made(2, 3, 2, loss_weight=0.5)
    counts = np.array([[2, 3], [3, 5], [1, 2]])
    (first, real), (hidden, later) = segments.spread(HIDDEN, counts)
    state = memory.extend(memory.initial(B, L, D), first.swapaxes(1, 2), real)
    hidden = tf.constant(hidden.swapaxes(1, 2))
    with tf.GradientTape() as tape:
        tape.watch(hidden)
        after = memory(**state, hidden=hidden, padding_mask=later, depth=stack, training=True)
        (loss,) = memory.losses
        total = loss + tf.reduce_sum(after[0])  # no gradient passes through the state
    # Of 5, 8 and 3 inputs the last two or three stay.
    old = [
        [[*HIDDEN[row, : 2 * groups, layer]] for layer in range(L)]
        for row, groups in enumerate((1, 3, 0))
    ]
    expected = expected_loss(memory, stack, hidden.numpy(), old, later)
    np.testing.assert_allclose(loss, 0.5 * expected, rtol=1e-4)
    others = [w.value for w in stack.trainable_weights]
    gradients = tape.gradient(total, [w.value for w in memory.weights] + [hidden, *others])
    assert all(np.abs(gradient).max() > 1e-4 for gradient in gradients[:2])
    assert gradients[2:] == [None] * (1 + len(others))


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [{"loss_weight": 0.0}, {"compression": "mean"}])
def test_no_loss_is_computed_where_nothing_learns_from_it(arguments):
    memory, stack = made(1, 1, 2, **arguments), segments.built(layers=L)
    state = memory.initial(B, L, D)
    memory(**state, hidden=HIDDEN.swapaxes(1, 2), depth=stack, training=True)
    assert memory.losses == []


def language_model(memory):
    model = CausalLanguageModel(TokenEmbedding(11, D), segments.built(layers=1), memory=memory)
    oracles.scramble(model, scale=0.8)
    return model


@pytest.mark.slow
def test_fit_trains_the_compression_and_keeps_the_memory(tmp_path):
    keras.utils.set_random_seed(0)
    trained = StatefulSegments(language_model(CompressiveMemory(2, 3, rate=2)), batch_size=2)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trained.compile("adam", loss, run_eagerly=True)  # a few steps take less time than a trace
    ids = np.tile(np.arange(1, 9), (2, 1))
    memory = trained.model.memory
    trained.fit(ids, ids, batch_size=2, epochs=1, verbose=0)
    before = [w.numpy() for w in memory.weights]
    trained.train_on_batch(ids, ids)
    for weight, old in zip(memory.weights, before, strict=True):
        assert np.abs(weight - old).max() > 1e-4
    assert set(trained.state) == {"memory", "memory_length", "compressed_memory_length"}
    assert trained.state["compressed_memory_length"].numpy().tolist() == [3, 3]
    trained.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for restored, expected in zip(again.get_weights(), trained.get_weights(), strict=True):
        np.testing.assert_array_equal(restored, expected)
    assert type(again.model.memory) is CompressiveMemory
    np.testing.assert_array_equal(again.predict_on_batch(ids), trained.predict_on_batch(ids))


@pytest.mark.slow
def test_an_episode_that_begins_inside_a_segment_forgets_compressed_slots():
    model = SequenceModel(
        3,
        keras.layers.Dense(D),
        segments.built(layers=1),
        CompressiveMemory(2, 3, rate=2),
        {"value": 1},
    )
    states = oracles.random(2, T, 3)
    outputs = model({"states": states, **model.initial_memory(2)})
    outputs.pop("value")
    assert outputs["compressed_memory_length"].numpy().tolist() == [3, 3]
    starts = np.arange(4) == 1
    after = model({"states": states[:, :4], "starts": np.tile(starts, (2, 1)), **outputs})
    fresh = model({"states": states[:, 1:4], **model.initial_memory(2)})
    np.testing.assert_allclose(after["value"][:, 1:], fresh["value"], atol=1e-5)
    assert after["memory_length"].numpy().tolist() == [3, 3]
    assert after["compressed_memory_length"].numpy().tolist() == [0, 0]


def test_config_and_refused_arguments():
    memory = CompressiveMemory(7, 5, rate=2, compression="max", name="memory")
    again = CompressiveMemory.from_config(json.loads(json.dumps(memory.get_config())))
    assert again.get_config() == memory.get_config()
    assert repr(CompressiveMemory(7, 5)) == "CompressiveMemory(7, 5)"
    for arguments, message in (
        ({"memory_length": -1}, "`memory_length`.*at least 0"),
        ({"compressed_length": 2.5}, "`compressed_length`.*compressed_length=2.5"),
        ({"rate": 0}, "`rate`.*at least 1"),
        ({"compression": "conv"}, "`compression` must be one of 'convolution', 'mean', 'max'"),
        ({"loss_weight": -1.0}, "`loss_weight`"),
    ):
        with pytest.raises(ValueError, match=message):
            CompressiveMemory(**{"memory_length": 3, "compressed_length": 2, **arguments})
