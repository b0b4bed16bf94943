"""The Gated Transformer-XL against the paper in loops, and the laws of memories and episodes."""

import keras
import numpy as np
import oracles
import pytest
import segments

from keras_attn.depth import Stack
from keras_attn.layers import FeedForward, MultiHeadAttention, TransformerBlock
from keras_attn.memory import SegmentMemory
from keras_attn.models import SequenceModel, gtrxl
from keras_attn.residuals import Gate

B, T, S, D, M = 3, 7, 5, 8, 11
STATES = oracles.random(B, T, S)
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": D, "intermediate_dim": 11}
HEADS = {"policy": 4, "value": 1}


def made(**arguments):
    model = gtrxl(S, **{"heads": HEADS, **SIZES, "memory_length": M, **arguments})
    oracles.scramble(model, scale=0.7)
    return model


@pytest.fixture(scope="module")
def model():
    return made()


def run(model, states, state=None, **more):
    """Return the policy of all states, and the memory after them."""
    state = state or model.initial_memory(len(states))
    outputs = {**model({"states": states, **state, **more})}
    policy = np.asarray(outputs["policy"])
    return policy, {name: outputs[name] for name in state}


def gate(residual, x, y):
    """g(x, y) of section 3.2, the GRU's, and before it the ReLU of section 3.1."""
    x_kernel, y_kernel, candidate, bias = (
        oracles.numpy_of(getattr(residual, name))
        for name in ("x_kernel", "y_kernel", "candidate_kernel", "gate_bias")
    )
    (u_r, u_z), (w_r, w_z, w_g) = np.split(x_kernel, 2, axis=1), np.split(y_kernel, 3, axis=1)
    y = np.maximum(y, 0)

    def sigmoid(a):
        return 1 / (1 + np.exp(-a))

    r, z = sigmoid(y @ w_r + x @ u_r), sigmoid(y @ w_z + x @ u_z - bias)
    return (1 - z) * x + z * np.tanh(y @ w_g + (r * x) @ candidate)


def oracle(model, cuts, memory_length):
    """Compute each row alone, segment by segment; each layer keeps all its inputs."""
    kernel, bias = (oracles.numpy_of(w) for w in model.embedding.weights)
    head_kernel, head_bias = (oracles.numpy_of(w) for w in model.heads["policy"].weights)
    rows = []
    for row in STATES.astype("float64"):
        read, outputs = [np.zeros((0, D)) for _ in model.depth.blocks], []
        for segment in np.split(row, cuts):
            x = segment @ kernel + bias
            for index, block in enumerate(model.depth.blocks):
                first, second = block.attention_residual, block.feed_forward_residual

                def norm(h, residual):
                    return oracles.layer_norm(h, *oracles.norm_weights(residual.norm), 1e-6)

                read[index] = np.concatenate([read[index], x])
                keys = read[index][-(memory_length + len(x)) :]
                y = segments.relative_attention(block.attention, norm(x, first), norm(keys, first))
                x = gate(first, x, y)
                weights = oracles.block_weights(block)["feed_forward"]
                x = gate(second, x, oracles.feed_forward(norm(x, second)[None], weights)[0])
            outputs.append(x @ head_kernel + head_bias)
        rows.append(np.concatenate(outputs))
    return np.stack(rows)


def test_short_memory_equals_the_formula(model):
    """A memory of 2 slots forgets, so one pass gives another output."""
    short = SequenceModel(S, model.embedding, model.depth, SegmentMemory(2), model.heads)
    policies, state = [], None
    for states in np.split(STATES, [3, 5], axis=1):
        policy, state = run(short, states, state)
        policies.append(policy)
    expected = oracle(model, [3, 5], memory_length=2)
    np.testing.assert_allclose(np.concatenate(policies, axis=1), expected, atol=1e-4)


def test_closed_gates_hide_the_past():
    """With b = 50 each block is the identity, so the past has no influence."""
    model = gtrxl(S, **SIZES, memory_length=M, residual=Gate(bias=50.0))
    outputs = model({"states": STATES, **model.initial_memory(B)})
    np.testing.assert_allclose(outputs["output"], model.embedding(STATES), atol=1e-6)


STARTS = np.zeros((B, T), bool)
STARTS[0, [2, 5]] = STARTS[1, 0] = True


@pytest.mark.slow
def test_episodes_inside_a_segment_equal_episodes_alone(model):
    """The next segment is checked too: the memory holds nothing of an earlier episode."""
    _, before = run(model, oracles.random(B, 3, S, seed=1))
    policies, state = [], before
    for states, starts in zip(
        np.split(STATES, [3], axis=1), np.split(STARTS, [3], axis=1), strict=True
    ):
        policy, state = run(model, states, state, starts=starts)
        policies.append(policy)
    policies = np.concatenate(policies, axis=1)
    for b in range(B):
        own = {name: value[b : b + 1] for name, value in before.items()}
        for episode in np.split(np.arange(T), np.flatnonzero(STARTS[b])):
            if len(episode) == 0:
                continue
            if STARTS[b, episode[0]]:
                own = None
            expected, own = run(model, STATES[b : b + 1, episode], own)
            np.testing.assert_allclose(policies[b, episode], expected[0], atol=1e-4)
        assert int(state["memory_length"][b]) == int(own["memory_length"][0])
        n = int(own["memory_length"][0])
        np.testing.assert_allclose(
            state["memory"][b, :, M - n :], own["memory"][0, :, M - n :], atol=1e-4
        )


def test_padding_has_no_influence_and_is_not_remembered(model):
    real = np.arange(T) < np.array([[4], [7], [0]])
    # A start in the padding means nothing.
    more = {"starts": np.arange(T)[None] == np.array([[5], [2], [0]])}
    padded = np.where(real[..., None], STATES, 1e6).astype("float32")
    policy, state = run(model, padded, padding_mask=real, **more)
    assert state["memory_length"].numpy().tolist() == [4, 5, 0]
    for b, length in enumerate([4, 7]):
        own = {name: x[b : b + 1, :length] for name, x in more.items()}
        expected, after = run(model, STATES[b : b + 1, :length], **own)
        np.testing.assert_allclose(policy[b, :length], expected[0], atol=1e-4)
        filled = int(after["memory_length"][0])
        np.testing.assert_allclose(
            state["memory"][b, :, M - filled :], after["memory"][0, :, M - filled :], atol=1e-4
        )


def test_invalid_arguments_raise(model):
    with pytest.raises(ValueError, match="`depth`.*accepts a memory.*Identity"):
        SequenceModel(S, model.embedding, keras.layers.Identity(), SegmentMemory(3))
    with pytest.raises(ValueError, match="`memory` must be a memory.*memory=None"):
        SequenceModel(S, model.embedding, model.depth, None, {"value": 1})
    with pytest.raises(ValueError, match="state_shape='two'"):
        gtrxl("two")
    block = TransformerBlock(MultiHeadAttention(2, 4, pattern="causal"), FeedForward(7))
    with pytest.raises(ValueError, match="`heads` cannot have.*'memory'"):
        SequenceModel(S, model.embedding, Stack([block]), SegmentMemory(3), {"memory": 2})
    block = TransformerBlock(MultiHeadAttention(2, 4, score="relative"), FeedForward(7))
    with pytest.raises(ValueError, match="`pattern` must be causal.*Dense"):
        SequenceModel(S, model.embedding, Stack([block]), SegmentMemory(3))
