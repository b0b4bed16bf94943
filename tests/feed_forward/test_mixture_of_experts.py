"""Mixtures of experts, compared with loops over positions and with plain feed-forward layers."""

import math

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from keras import ops

from keras_attn.backend.row_groups import map_groups
from keras_attn.layers import (
    FeedForward,
    GatedFeedForward,
    MixtureOfExperts,
    MultiHeadAttention,
    TransformerBlock,
)
from keras_attn.models.papers.gpt_oss import ClippedGatedFeedForward

B, T, D, F, E, K = 3, 5, 7, 11, 4, 2
X = oracles.random(B, T, D)
REAL = np.arange(T)[None] < np.array([[5], [3], [0]])


def built(expert=None, num_experts=E, top_k=K, scale=0.3, **arguments):
    layer = MixtureOfExperts(expert or GatedFeedForward(F), num_experts, top_k, **arguments)
    layer.build(X.shape)
    oracles.scramble(layer, scale=scale)
    return layer


def weights_of(layer):
    parts = layer.router_kernel, layer.kernels, layer.biases
    return [[oracles.numpy_of(w) for w in tf.nest.flatten(part)] for part in parts]


def routed(layer, x):
    """For one position: the logits, and the chosen experts with their weights."""
    (router,), *_ = weights_of(layer)
    bias = oracles.numpy_of(layer.router_bias) if layer.use_router_bias else np.zeros(E)
    logits = [sum(x[d] * router[d, e] for d in range(D)) + bias[e] for e in range(len(bias))]
    chosen = sorted(range(len(logits)), key=lambda e: -logits[e])[: layer.top_k]
    of = chosen if layer.router == "renormalized" else range(len(logits))
    total = sum(math.exp(logits[e]) for e in of)
    return logits, {e: math.exp(logits[e]) / total for e in chosen}


def expert_output(layer, e, x):
    _, kernels, biases = weights_of(layer)
    biases = biases or [np.zeros((layer.num_experts, k.shape[2])) for k in kernels]
    hidden = [x @ k[e] + b[e] for k, b in zip(kernels[:-1], biases)]
    hidden = np.asarray(layer.expert.join(*(np.array(h, "float32") for h in hidden)), "float64")
    return hidden @ kernels[-1][e] + biases[-1][e]


@pytest.mark.parametrize(
    "make, router, top_k",
    [
        (lambda: GatedFeedForward(F), "renormalized", 2),
        (lambda: FeedForward(F, activation="gelu"), "probability", 1),
    ],
    ids=["gated", "plain, with biases"],
)
def test_output_equals_the_formula(make, router, top_k):
    layer = built(make(), top_k=top_k, router=router, use_router_bias=top_k == 2)
    output, expected = layer(X), np.zeros(X.shape)
    used = set()
    for index in np.ndindex(B, T):
        _, weights = routed(layer, X[index])
        used |= set(weights)
        expected[index] = sum(w * expert_output(layer, e, X[index]) for e, w in weights.items())
    assert len(used) == E
    np.testing.assert_allclose(output, expected, atol=1e-5)


def test_a_gate_of_the_input_multiplies_the_shared_layer():
    shared = FeedForward(F)
    layer = built(shared=shared, use_shared_gate=True)
    without = built(shared=None)
    for ours, theirs in zip(without.weights, layer.weights, strict=False):
        ours.assign(theirs)
    gate = 1 / (1 + np.exp(-X @ oracles.numpy_of(layer.shared_gate)))
    assert layer.shared_gate.shape == (D, 1) and np.ptp(gate) > 0.01
    expected = oracles.numpy_of(without(X)) + gate * oracles.numpy_of(shared(X))
    np.testing.assert_allclose(layer(X), expected, atol=1e-6)
    again = MixtureOfExperts.from_config(layer.get_config())
    again.build(X.shape)
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(again(X), layer(X))


@pytest.mark.parametrize("alpha", [None, 1.3])
def test_bounds_of_an_expert_are_those_of_its_arguments(alpha):
    expert = ClippedGatedFeedForward(F, "relu", limit=2.0, alpha=alpha)
    gate, up = np.array([-3.0, 0.5, 3.0]), np.array([-4.0, 0.25, 4.0])
    activated = (
        [0, 0.5, 2] if alpha is None else [x / (1 + math.exp(-1.3 * x)) for x in (-3, 0.5, 2)]
    )
    expected = np.array(activated) * [-1, 1.25, 3]
    np.testing.assert_allclose(expert.join(gate, up), expected, atol=1e-6)
    assert repr(ClippedGatedFeedForward.from_config(expert.get_config())) == repr(expert)


def with_gradients(layer, x, **arguments):
    x = tf.convert_to_tensor(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        output = layer(x, **arguments)
        loss = tf.reduce_sum(tf.sin(output)) + sum(layer.losses)
    return output, *tape.gradient(loss, [x, *(w.value for w in layer.trainable_weights)])


def test_gradients_are_those_of_a_loop_over_all_experts():
    """Each expert computes every position there, and a weight of 0 leaves it out."""
    layer = built(FeedForward(F))
    results = with_gradients(layer, X)

    def every_expert(x):
        logits = ops.matmul(x, layer.router_kernel)
        best = ops.top_k(logits, K)[0][..., -1:]
        weights = ops.softmax(ops.where(logits >= best, logits, -1e9))
        hidden = ops.einsum("btd,edf->btef", x, layer.kernels[0]) + layer.biases[0]
        outputs = ops.einsum("btef,efd->bted", ops.relu(hidden), layer.kernels[1])
        return ops.sum(weights[..., None] * (outputs + layer.biases[1]), axis=2)

    x = tf.convert_to_tensor(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        output = every_expert(x)
        loss = tf.reduce_sum(tf.sin(output))
    gradients = tape.gradient(loss, [x, *(w.value for w in layer.trainable_weights)])
    for part, whole in zip(results, (output, *gradients), strict=True):
        assert np.abs(whole).max() > 0
        np.testing.assert_allclose(part, whole, atol=1e-5)


def test_an_output_is_the_same_alone_and_in_a_batch():
    layer = built()
    whole = oracles.numpy_of(layer(X))
    for index in [(0, 0), (1, 2), (2, 4)]:
        alone = layer(X[index][None, None])
        np.testing.assert_allclose(alone[0, 0], whole[index], atol=1e-6)


@pytest.mark.parametrize("top_k, router", [(1, "probability"), (2, "renormalized")])
def test_positions_beyond_the_capacity_get_nothing_from_an_expert(top_k, router):
    """An expert computes the first ones of a row; padding is not among them."""
    layer = built(FeedForward(F), top_k=top_k, router=router, capacity=2)
    real = np.ones((B, T), bool)
    real[1, 1] = False
    expected, dropped = np.zeros(X.shape), 0
    for row in range(B):
        counts = dict.fromkeys(range(E), 0)
        for position in np.flatnonzero(real[row]):
            x = X[row, position]
            for e, weight in routed(layer, x)[1].items():
                counts[e] += 1
                if counts[e] <= 2:
                    expected[row, position] += weight * expert_output(layer, e, x)
                dropped += counts[e] > 2
    assert dropped > 1
    np.testing.assert_allclose(layer(X, padding_mask=real), expected, atol=1e-5)
    graph = tf.function(lambda x: layer(x), input_signature=[tf.TensorSpec((None, None, D))])
    np.testing.assert_allclose(graph(X), layer(X), atol=1e-6)
    alone = layer(X[:1, :1])  # a step of decoding
    np.testing.assert_allclose(alone, built_alike(layer, capacity=None)(X)[:1, :1], atol=1e-6)


def built_alike(layer, **arguments):
    """A layer with other arguments and the same weights."""
    other = MixtureOfExperts.from_config({**layer.get_config(), **arguments})
    other.build(X.shape)
    other.set_weights(layer.get_weights())
    return other


def test_padding_changes_no_output_and_no_loss():
    layer = built(z_loss=0.1, balance_loss=0.3, top_k=2)
    results = with_gradients(layer, X, padding_mask=REAL, training=True)
    losses = [float(x) for x in layer.losses]
    other = np.where(REAL[..., None], X, 100 * oracles.random(B, T, D, seed=3)).astype("float32")
    changed = with_gradients(layer, other, padding_mask=REAL, training=True)
    np.testing.assert_allclose(changed[0], results[0], atol=1e-6)
    np.testing.assert_array_equal(results[0].numpy()[~REAL], 0)
    np.testing.assert_allclose([float(x) for x in layer.losses], losses, rtol=1e-5)
    alone = layer(X[REAL][None], training=True)
    np.testing.assert_allclose(alone[0], results[0].numpy()[REAL], atol=1e-6)
    np.testing.assert_allclose([float(x) for x in layer.losses], losses, rtol=1e-5)


def test_losses_equal_the_formulas_and_exist_in_training_only():
    layer = built(balance_loss=0.3, z_loss=0.1)
    layer(X)
    assert layer.losses == []
    layer(X, padding_mask=REAL, training=True)
    counts, probabilities, squares = np.zeros(E), np.zeros(E), 0.0
    for index in zip(*np.nonzero(REAL)):
        logits, weights = routed(layer, X[index])
        total = sum(math.exp(value) for value in logits)
        probabilities += [math.exp(value) / total for value in logits]
        counts[list(weights)] += 1
        squares += math.log(total) ** 2
    number = REAL.sum()
    balance = E * sum(counts / (K * number) * probabilities / number)
    assert balance > 1
    losses = [float(x) for x in layer.losses]
    np.testing.assert_allclose(losses, [0.3 * balance, 0.1 * squares / number], rtol=1e-5)


@pytest.mark.slow
def test_the_losses_of_two_replicas_are_those_of_one(monkeypatch):
    """The mean of both replicas' losses; each sees its own rows and the sums of both."""
    from keras_attn.backend import replicas
    from keras_attn.feed_forward import mixture_of_experts

    layer = built(balance_loss=0.3, z_loss=0.1)
    layer(X, padding_mask=REAL, training=True)
    expected = [float(x) for x in layer.losses]
    parts, sums = [slice(0, 1), slice(1, 3)], []

    def collect(value):
        sums[-1].append(value)
        return value

    monkeypatch.setattr(replicas, "share_of_sum", lambda own: own)
    for part in parts:
        sums.append([])
        monkeypatch.setattr(mixture_of_experts, "replica_sum", collect)
        monkeypatch.setattr(replicas, "replica_sum", collect)
        layer(X[part], padding_mask=REAL[part], training=True)
    totals = [first + second for first, second in zip(*sums, strict=True)]
    monkeypatch.setattr(replicas, "num_replicas", lambda: 2)
    losses = np.zeros(2)
    for part in parts:
        iterator = iter(totals)
        monkeypatch.setattr(mixture_of_experts, "replica_sum", lambda value: next(iterator))
        monkeypatch.setattr(replicas, "replica_sum", lambda value: next(iterator))
        layer(X[part], padding_mask=REAL[part], training=True)
        losses += [float(x) / 2 for x in layer.losses]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def groups_of(counts, total):
    """Rows, kernels of three groups, and what a loop makes of them."""
    rows = oracles.random(total, D)
    kernels = oracles.random(len(counts), D, F, seed=1)
    expected, first = np.zeros((total, F), "float32"), 0
    for count, kernel in zip(counts, kernels):
        expected[first : first + count] = rows[first : first + count] @ kernel
        first += count
    return rows, np.array(counts, "int32"), kernels, expected


@pytest.mark.parametrize(
    "counts, total", [((0, 0, 0), 2), ((130, 1, 69), 200), ((0, 128, 64), 192)]
)
def test_blocks_equal_slices_with_gradients(counts, total):
    """Blocks are what compilers get; a group may fill several, one, or none."""
    rows, counts, kernels, expected = groups_of(counts, total)
    results, ways = [], [map_groups, map_groups.portable]
    for run in ways:
        x, weights = tf.convert_to_tensor(rows), tf.convert_to_tensor(kernels)
        with tf.GradientTape() as tape:
            tape.watch([x, weights])
            output = run(tf.matmul, x, tf.convert_to_tensor(counts), [weights])
            loss = tf.reduce_sum(tf.sin(output))
        np.testing.assert_allclose(output, expected, atol=1e-5)
        results.append(tape.gradient(loss, [x, weights]))
    for result in results[1:]:
        oracles.check_each(result, results[0], atol=1e-4)


@pytest.mark.slow
def test_graphs_of_unknown_sizes_and_xla_equal_eager():
    layer = built(FeedForward(F))
    expected = with_gradients(layer, X)
    spec = [tf.TensorSpec((None, None, D))]
    for arguments in ({"input_signature": spec}, {"jit_compile": True}):
        results = tf.function(lambda x: with_gradients(layer, x), **arguments)(X)
        oracles.check_each(results, expected, atol=1e-5)


def test_a_shared_layer_is_added():
    layer = built(shared=FeedForward(F), scale=0.2)
    shared = layer.shared(X)
    routed_part = layer(X) - shared
    layer.shared = None
    np.testing.assert_allclose(layer(X), routed_part, atol=1e-5)


def test_a_block_passes_its_padding_on_and_trains_the_router():
    attention = MultiHeadAttention(2, 4)
    block = TransformerBlock(attention, MixtureOfExperts(FeedForward(F), E, K, balance_loss=1.0))
    block.build(X.shape)
    block(X, padding_mask=REAL, training=True)
    masked = float(block.losses[0])
    other = np.where(REAL[..., None], X, 50.0).astype("float32")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(block(other, padding_mask=REAL, training=True) ** 2)
    assert float(block.losses[0]) == pytest.approx(masked, rel=1e-5)
    assert np.any(tape.gradient(loss, block.feed_forward.router_kernel.value) != 0)


def test_dropout_applies_to_the_hidden_layer_in_training_only():
    layer = built(FeedForward(F, dropout=0.5))
    np.testing.assert_array_equal(layer(X), layer(X, training=False))
    assert np.any(layer(X, training=True) != layer(X))


def test_the_router_is_float32():
    reference, layer = built(), built(dtype="mixed_bfloat16")
    x = ops.convert_to_numpy(ops.cast(ops.cast(X, layer.compute_dtype), "float32"))
    output = layer(x)
    assert keras.backend.standardize_dtype(output.dtype) == layer.compute_dtype
    scale = np.abs(reference(x)).max()
    np.testing.assert_allclose(oracles.numpy_of(output), reference(x), atol=2.0**-5 * scale)


def test_a_near_tie_is_decided_in_float32():
    """Logits of 100 and 100.25 are equal in bfloat16."""
    options = {"num_experts": 2, "top_k": 1, "router": "probability", "dtype": "mixed_bfloat16"}
    layer = built(FeedForward(F), scale=0.0, **options)
    router = np.zeros((D, 2))
    router[0], router[1, 1] = 100, 0.25
    layer.router_kernel.assign(router)
    layer.biases[-1].assign(np.ones((2, D)) * [[0], [1]])
    np.testing.assert_allclose(oracles.numpy_of(layer(np.ones((1, 1, D)))), 0.562, atol=4e-3)


def test_each_expert_is_drawn_by_itself():
    layer = MixtureOfExperts(FeedForward(200, use_bias=False), 2, 2)
    layer.build((None, None, 100))
    limit = math.sqrt(6 / 300)
    for kernel in layer.kernels[0].numpy():
        assert 0.98 * limit < np.abs(kernel).max() <= limit
    first, second = layer.kernels[0].numpy()
    assert np.all(first != second)


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        ({"top_k": 5}, "`top_k` must be at most `num_experts`, 4. Received: top_k=5"),
        ({"top_k": 1}, 'use router="probability"'),
        ({"num_experts": 0}, "`num_experts`.*num_experts=0"),
        ({"capacity": 0}, "`capacity`.*capacity=0"),
        ({"router": "sigmoid"}, "`router` must be one of 'renormalized', 'probability'"),
        ({"use_shared_gate": True}, "`use_shared_gate` must be False without `shared`"),
        ({"balance_loss": -1}, "`balance_loss`.*-1"),
        ({"expert": FeedForward(F, chunks=2)}, "with chunks=1"),
        ({"expert": keras.layers.Dense(3)}, "an unbuilt `FeedForward`"),
    ],
)
def test_invalid_arguments_raise(arguments, sentence):
    arguments = {"expert": FeedForward(F), "num_experts": E, **arguments}
    with pytest.raises(ValueError, match=sentence):
        MixtureOfExperts(**arguments)


def test_an_expert_with_a_call_of_its_own_is_refused():
    class Zero(FeedForward):
        def call(self, x, training=None):
            return 0 * super().call(x, training=training)

    with pytest.raises(ValueError, match="that does not override `call`"):
        MixtureOfExperts(Zero(F), E)


def test_an_expert_that_is_built_is_refused():
    expert = FeedForward(F)
    expert.build(X.shape)
    with pytest.raises(ValueError, match="an unbuilt `FeedForward`"):
        MixtureOfExperts(expert, E)
