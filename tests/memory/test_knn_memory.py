"""The keys of earlier segments: an exact search, its joins, and whole models that keep them."""

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn import depth, layers
from keras_attn.layers import FeedForward, KNNAttention, MultiHeadAttention, TransformerBlock
from keras_attn.memory import KNNMemory, SegmentMemory, StatefulSegments
from keras_attn.models import CausalLanguageModel
from keras_attn.scores import Kernel

B, T, M, N, H, HV, D, V = 2, 5, 7, 3, 4, 5, 6, 11
X = oracles.random(B, T, D)
MEMORY = oracles.random(B, N, M, H + HV)
FILLED = np.array([[True] * M, [False] * 5 + [True] * 2])


def built(**arguments):
    settings = {"value_dim": HV, "pattern": "causal", "top_k": 3, **arguments}
    layer = KNNAttention(N, H, **settings)
    layer.build((B, T, D))
    oracles.scramble(layer, scale=0.8)
    return layer


def heads(layer, x):
    """Return normalised queries and keys, and values, (B, N, T, H) each, in float64."""
    projected = []
    for name, norm in (("query", layer.qk_norm), ("key", layer.key_norm), ("value", None)):
        kernel, bias = (oracles.numpy_of(getattr(layer, f"{name}_{k}")) for k in ("kernel", "bias"))
        y = np.array([oracles.project(row.astype("float64"), kernel, bias) for row in x])
        if norm is not None:
            scale = np.sqrt(np.mean(y**2, axis=-1, keepdims=True) + norm.epsilon)
            y = y / scale * oracles.numpy_of(norm.scale)
        projected.append(y)
    return projected


def looked_up(layer, query, memory, filled):
    """Return the keys that a query finds, by sorting: logits and values."""
    key, value = memory[filled, :H], memory[filled, H:]
    logits = key @ query / np.sqrt(H)
    best = np.argsort(-logits)[: layer.top_k]
    return logits[best], value[best]


def expected(layer, memory=MEMORY, filled=FILLED):
    query, key, value = heads(layer, X)
    kernel, bias = oracles.numpy_of(layer.output_kernel), oracles.numpy_of(layer.output_bias)
    output = np.zeros((B, T, D)) + bias
    for b, n, t in np.ndindex(B, N, T):
        own = key[b, n, : t + 1] @ query[b, n, t] / np.sqrt(H)
        memory_logits, values = looked_up(
            layer, query[b, n, t], memory[b, n].astype("float64"), filled[b]
        )
        near, far = value[b, n, : t + 1], values
        if layer.join == "softmax":
            weights = np.exp(np.concatenate([own, memory_logits]))
            head = weights / weights.sum() @ np.concatenate([near, far])
        else:
            gate = 1 / (1 + np.exp(-oracles.numpy_of(layer.gate)[n])) if len(memory_logits) else 0.0
            head = (1 - gate) * (np.exp(own) / np.exp(own).sum()) @ near
            if len(memory_logits):
                head = head + gate * (np.exp(memory_logits) / np.exp(memory_logits).sum()) @ far
        output[b, t] += head @ kernel[n]
    return output


def read(layer, memory=MEMORY, filled=FILLED):
    cache = {"memory": tf.constant(memory), "memory_mask": tf.constant(filled)}
    return layer(X, X, cache=cache)


@pytest.mark.parametrize(
    "join, implementation, top_k", [("gate", "dense", 1), ("softmax", "blockwise", 3)]
)
def test_output_equals_a_sorted_search(join, implementation, top_k):
    layer = built(join=join, implementation=implementation, top_k=top_k)
    output, cache = read(layer)
    np.testing.assert_allclose(output, expected(layer), atol=1e-5)
    _, key, value = heads(layer, X)
    np.testing.assert_allclose(cache["new"], np.concatenate([key, value], axis=-1), atol=1e-5)


def test_there_may_be_more_neighbours_than_slots():
    layer = built(top_k=M + 9)
    np.testing.assert_allclose(read(layer)[0], expected(layer), atol=1e-5)


@pytest.mark.parametrize("join", ["gate", "softmax"])
def test_empty_slots_have_no_influence(join):
    layer = built(join=join)
    nothing = np.zeros((B, M), bool)
    for garbage in (np.nan, 1e3):
        output, _ = read(layer, np.full_like(MEMORY, garbage), nothing)
        np.testing.assert_allclose(output, layer(X, X), atol=1e-6)
    garbage = np.where(FILLED[:, None, :, None], MEMORY, np.nan).astype("float32")
    np.testing.assert_array_equal(read(layer, garbage)[0], read(layer)[0])


def test_sinks_take_their_share_beside_a_memory():
    settings = {"join": "softmax", "implementation": "blockwise"}
    layer = built(**settings, sinks=True)
    output, _ = read(layer, filled=np.zeros((B, M), bool))
    np.testing.assert_allclose(output, layer(X, X), atol=1e-6)
    none = built(**settings)
    none.set_weights([w.numpy() for w in layer.weights if "sink" not in w.path])
    layer.sink_logits.assign([-50.0] * N)
    np.testing.assert_allclose(read(layer)[0], read(none)[0], atol=1e-5)
    layer.sink_logits.assign([50.0] * N)
    takes_all = np.broadcast_to(layer.output_bias, (B, T, D))
    np.testing.assert_allclose(read(layer)[0], takes_all, atol=1e-5)


def test_scores_beside_a_memory_are_those_of_the_segment():
    """Also the zeros of a row without a key."""
    layer = built(join="softmax", sinks=True)
    arguments = {
        "value_mask": np.arange(T)[None] > np.array([[1], [T]]),
        "return_attention_scores": True,
    }
    cache = {"memory": tf.constant(MEMORY), "memory_mask": tf.constant(FILLED)}
    _, expected = layer(X, X, **arguments)
    _, scores, _ = layer(X, X, cache=cache, **arguments)
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    assert not np.any(scores[1]) and np.any(scores[0])


def test_a_plan_without_a_sum_of_weights_becomes_the_whole_matrix(monkeypatch):
    """The fused kernel of a GPU."""
    layer = built(join="softmax")
    attend = layer.attend

    def attend_fused(prepared):
        return attend(prepared.replace(implementation="fused"))

    monkeypatch.setattr(layer, "attend", attend_fused)
    np.testing.assert_allclose(read(layer)[0], expected(layer), atol=1e-5)


def test_no_gradient_passes_into_the_memory():
    layer, memory = built(), tf.constant(MEMORY)
    with tf.GradientTape() as tape:
        tape.watch(memory)
        output, _ = layer(X, X, cache={"memory": memory, "memory_mask": tf.constant(FILLED)})
        loss = tf.reduce_sum(output * oracles.random(*output.shape))
    crossing, gate, query = tape.gradient(
        loss, [memory, layer.gate.value, layer.query_kernel.value]
    )
    assert crossing is None
    assert np.abs(gate).min() > 1e-3 and np.abs(query).max() > 1e-3


@pytest.mark.slow
def test_shared_heads_keep_each_key_once():
    layer = built(num_key_value_heads=1)
    output, cache = read(layer, MEMORY[:, :1])
    assert cache["new"].shape == (B, 1, T, H + HV)
    repeated = built()
    for weight, shared in zip(repeated.weights, layer.weights, strict=True):
        copies = weight.shape[-2] // shared.shape[-2] if len(weight.shape) > 1 else 1
        weight.assign(np.repeat(shared, copies, axis=-2) if copies > 1 else shared)
    expected, _ = read(repeated, np.repeat(MEMORY[:, :1], N, axis=1))
    np.testing.assert_allclose(output, expected, atol=1e-5)


def language_model(memory_length=9, **arguments):
    def block(index):
        make = MultiHeadAttention if index == 0 else KNNAttention
        more = {"top_k": memory_length, **arguments} if index else {}
        attention = make(N, H, pattern="causal", **more)
        return TransformerBlock(attention, FeedForward(7), residual="pre_norm")

    memory = KNNMemory(memory_length)
    model = CausalLanguageModel(layers.TokenEmbedding(V, D), depth.Stack(block, 2), memory=memory)
    oracles.scramble(model, scale=0.8)
    return model


def test_a_model_keeps_the_keys_of_its_layer_and_looks_them_up():
    """Padding is not kept; the oracle is the layer itself, called with all keys so far."""
    model = language_model()
    ids = np.array([[3, 4, 5, 6], [7, 8, 0, 0]])
    state = model({"token_ids": ids, **model.initial_memory(2)})
    assert state.pop("logits").shape == (2, 4, V)
    assert state["memory"].shape == (2, N, 9, 2 * H)
    assert state["memory_length"].numpy().tolist() == [4, 2]
    outputs = model({"token_ids": ids, **state})
    assert outputs["memory_length"].numpy().tolist() == [8, 4]
    np.testing.assert_array_equal(outputs["memory"][0, :, 1:5], state["memory"][0, :, 5:])
    first, second = model.depth.blocks
    x = first(model.embedding(ids))
    normed = second.residual.before(x)
    filled = np.arange(9) >= 9 - state["memory_length"].numpy()[:, None]
    cache = {"memory": state["memory"], "memory_mask": tf.constant(filled)}
    attended, _ = second.attention(normed, normed, cache=cache)
    x = x + attended
    x = x + second.feed_forward(second.feed_forward_residual.before(x))
    logits = model.embedding.logits(model.depth.norm(x))
    real = ids != 0
    np.testing.assert_allclose(outputs["logits"][real], logits[real], atol=1e-4)


@pytest.mark.slow
def test_fit_trains_the_gate_from_the_first_batch_with_a_memory():
    trained = StatefulSegments(language_model(), batch_size=2)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    trained.compile("adam", loss, run_eagerly=True)  # a few steps take less time than a trace
    ids = np.array([[3, 4, 5, 6], [7, 8, 9, 10]])
    gate = trained.model.depth.blocks[1].attention.gate.numpy()
    trained.fit(ids, ids, batch_size=2, epochs=1, verbose=0)
    np.testing.assert_array_equal(trained.model.depth.blocks[1].attention.gate, gate)
    trained.train_on_batch(ids, ids)
    assert np.all(trained.model.depth.blocks[1].attention.gate.numpy() != gate)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: KNNAttention(2, 4, top_k=0), "`top_k`.*at least 1"),
        (lambda: KNNAttention(2, 4, join="sum"), "`join` must be one of 'gate', 'softmax'"),
        (lambda: KNNAttention(2, 4, position="rotary"), "`position` must be None"),
        (lambda: read(built(join="softmax", score=Kernel())), "a score with a sum of weights"),
        (lambda: read(built(), MEMORY[..., 1:]), "`memory` must have shape"),
        (
            lambda: CausalLanguageModel(
                layers.TokenEmbedding(V, D),
                depth.Stack([TransformerBlock(built(), FeedForward(7))]),
                memory=SegmentMemory(3),
            ),
            "needs a `KNNMemory`.*SegmentMemory",
        ),
        (
            lambda: CausalLanguageModel(
                layers.TokenEmbedding(V, D),
                depth.Stack(
                    [TransformerBlock(MultiHeadAttention(2, 4, pattern="causal"), FeedForward(7))]
                ),
                memory=KNNMemory(3),
            ),
            "a depth with one `KNNAttention`",
        ),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()
