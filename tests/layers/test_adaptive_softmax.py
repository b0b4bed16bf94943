"""Against loops in float64, and against the full table of log-probabilities."""

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from marks import slow

from keras_attn.layers import AdaptiveEmbedding, AdaptiveSoftmax
from keras_attn.layers import adaptive_softmax as clusters
from keras_attn.losses import LabelSmoothedCrossentropy

B, T, D, V = 3, 37, 13, 101
CUTOFFS, DIV = [11, 29], 3
X = oracles.random(B, T, D)
RANDOM = np.random.default_rng(0)
# Batches whose rare words are few, or all words are, or none is.
LABELS = {
    "few": np.where(RANDOM.random((B, T)) < 0.08, RANDOM.integers(11, V, (B, T)), 3),
    "some": RANDOM.integers(1, V, (B, T)),
    "none": RANDOM.integers(1, 11, (B, T)),
    "all in one": np.full((B, T), 11),
    "one": np.where(np.arange(B * T).reshape(B, T) == 50, 29, 3),
}


def built(cutoffs=CUTOFFS, div_val=DIV, policy="float32", **options):
    embedding = AdaptiveEmbedding(V, D, cutoffs, div_val, dtype=policy)
    layer = AdaptiveSoftmax(embedding, dtype=policy, **options)
    layer.build((None, None, D))
    oracles.scramble(layer)
    return layer


def log_softmax(logits):
    top = logits.max()
    return logits - top - np.log(np.exp(logits - top).sum())


def oracle(layer, x):
    """log p of all words after one vector."""
    edges, tail = [0, *layer.embedding.cutoffs, V], []
    projections = [*layer.projections, *layer.embedding.projections[len(layer.projections) :]]
    for i in range(len(edges) - 1):
        table = oracles.numpy_of(layer.embedding.tables[i])
        if i == 0 and len(edges) > 2:
            table = np.concatenate([table, oracles.numpy_of(layer.cluster_table)])
        inner = oracles.numpy_of(projections[i]) @ x if projections else x
        tail.append(log_softmax(table @ inner + oracles.numpy_of(layer.biases[i])))
    result = np.zeros(V)
    for word in range(V):
        i = max(i for i in range(len(edges) - 1) if edges[i] <= word)
        result[word] = tail[0][edges[1] + i - 1] if i else 0.0
        result[word] += tail[i][word - edges[i]]
    return result


@pytest.mark.parametrize("tied, div_val", [(False, DIV), ("all_but_first", DIV), (True, 1)])
def test_output_equals_the_formula(tied, div_val):
    layer = built(CUTOFFS, div_val, tied_projections=tied)
    output = layer(X)
    for index in [(0, 0), (1, 5), (2, 36)]:
        expected = oracle(layer, X[index].astype("float64"))
        np.testing.assert_allclose(output[index], expected, atol=1e-5)


def test_one_cluster_equals_the_plain_softmax():
    layer = built([], 1)
    table, bias = oracles.numpy_of(layer.embedding.tables[0]), oracles.numpy_of(layer.biases[0])
    logits = X @ table.T + bias
    np.testing.assert_allclose(layer(X), keras.ops.log_softmax(logits), atol=1e-5)
    labels = LABELS["some"]
    expected = keras.ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    np.testing.assert_allclose(layer(X, labels), expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["few", "all in one", "one"])
def test_losses_are_those_of_the_full_table_in_the_order_of_the_tokens(kind):
    layer, labels = built(), LABELS[kind]
    expected = -np.take_along_axis(layer(X).numpy(), labels[..., None], -1)[..., 0]
    np.testing.assert_allclose(layer(X, labels), expected, atol=1e-5)


@pytest.mark.parametrize(
    "kind, compiled, cutoffs", [("few", False, CUTOFFS), slow("some", True, [11])]
)
def test_the_gradient_is_that_of_the_full_table(kind, compiled, cutoffs):
    layer = built(cutoffs, tied_projections="all_but_first")
    weights = [weight.value for weight in layer.trainable_weights]
    inputs = [tf.constant(X), tf.constant(LABELS[kind]), tf.constant(oracles.random(B, T, seed=2))]
    unknown = [tf.TensorSpec((None, None, *x.shape[2:]), x.dtype) for x in inputs]

    def gradients(losses, compiled=False):
        def run(x, labels, shares):
            with tf.GradientTape() as tape:
                tape.watch(x)
                value = tf.reduce_sum(shares * losses(x, labels))
            # The embedding's own first projection is used by the embedding only.
            derivatives = tape.gradient(value, [x, *weights], unconnected_gradients="zero")
            return [tf.convert_to_tensor(x) for x in derivatives]

        return (tf.function(run, unknown, jit_compile=True) if compiled else run)(*inputs)

    layer_gradients = gradients(layer, compiled)
    expected = gradients(lambda x, labels: -tf.gather(layer(x), labels, batch_dims=2))
    assert sum(np.any(x != 0) for x in expected) == len(weights)
    oracles.check_each(layer_gradients, expected, atol=1e-5, scaled=True)


@pytest.mark.slow
def test_the_gradient_of_an_unused_cluster_is_zero(monkeypatch):
    monkeypatch.setattr(clusters, "PARTS", (1,))  # each part has a branch to trace
    layer = built()
    tables = [layer.embedding.tables[i].value for i in (1, 2)]

    @tf.function
    def gradients(labels):
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(layer(X, labels))
        return tape.gradient(value, tables)

    used, unused = gradients(tf.constant(LABELS["all in one"]))
    assert np.abs(used).max() > 0.01
    np.testing.assert_array_equal(unused, 0.0)


@pytest.mark.parametrize("kind, most", [("few", 7 + 2), ("none", 0), ("some", 2 * B * T)])
def test_cluster_logits_are_computed_for_few_tokens(kind, most, monkeypatch):
    """Eager calls run the way that is chosen; of 111 tokens the ways are 2, 7, 28 and 111."""
    layer, rows = built(), []
    plain = clusters.crossentropy

    def counting(labels, logits):
        rows.append(labels.shape[0])
        return plain(labels, logits)

    monkeypatch.setattr(clusters, "crossentropy", counting)
    labels = LABELS[kind]
    layer(X, labels)
    assert rows[0] == B * T  # the head
    counts = [((a <= labels) & (labels < b)).sum() for a, b in [(11, 29), (29, V)]]
    assert len(rows[1:]) == sum(count > 0 for count in counts)
    used = [count for count in counts if count]
    assert all(c <= r <= max(2, 4 * c) for c, r in zip(used, rows[1:], strict=True))
    assert sum(rows[1:]) <= most


def test_padding_has_no_loss():
    layer = built()
    labels = LABELS["some"].copy()
    labels[0, 30:] = 0
    with tf.GradientTape() as tape:
        x = tf.constant(X)
        tape.watch(x)
        losses = layer(x, labels)
    np.testing.assert_array_equal(losses[0, 30:], 0.0)
    np.testing.assert_allclose(losses[:, :30], layer(X, LABELS["some"])[:, :30], atol=1e-6)
    slope = tape.gradient(losses, x).numpy()
    np.testing.assert_array_equal(slope[0, 30:], 0.0)
    assert np.all(np.any(slope[0, :30] != 0, axis=-1))
    other = built(ignore_class=-100)
    outside = np.where(labels == 0, -100, labels)
    np.testing.assert_allclose(other(X, outside), losses, atol=1e-6)
    every = built(ignore_class=None)
    np.testing.assert_allclose(every(X, labels), other(X, labels), atol=1e-6)
    assert np.all(every(X, labels) > 0)


@pytest.mark.slow
def test_half_precision():
    layer, reference = built(policy="mixed_float16"), built()
    labels = LABELS["some"]
    for output, expected in [(layer(X), reference(X)), (layer(X, labels), reference(X, labels))]:
        assert keras.backend.standardize_dtype(output.dtype) == "float32"
        np.testing.assert_allclose(output, expected, atol=0.02)
    # Exponentials of 101 words at a low precision would be off by far more, and so would biases.
    np.testing.assert_allclose(np.exp(layer(X)).sum(-1), 1.0, atol=1e-5)
    np.testing.assert_allclose(layer(0 * X), reference(0 * X), atol=1e-6)


@pytest.mark.slow
def test_loaded_softmax_stays_tied(tmp_path):
    token_ids, labels = (keras.Input((None,), dtype="int32") for _ in range(2))
    embedding = AdaptiveEmbedding(V, D, CUTOFFS, DIV)
    losses = AdaptiveSoftmax(embedding, name="softmax")(embedding(token_ids), labels)
    trained = keras.Model([token_ids, labels], losses)
    oracles.scramble(trained)
    x, y = LABELS["some"], LABELS["few"]
    trained.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded([x, y]), trained([x, y]))
    assert loaded.count_params() == trained.count_params()
    embedding = loaded.get_layer("softmax").embedding
    assert any(layer is embedding for layer in loaded.layers)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: AdaptiveSoftmax("table"), "`embedding` must be an `AdaptiveEmbedding`.*'table'"),
        (lambda: built(tied_projections="first"), "`tied_projections`.*'first'"),
        (lambda: built()(X[..., 1:]), r"`x`.*13.*\(3, 37, 12\)"),
        (lambda: built()(X, LABELS["few"][:, 1:]), r"`labels`.*\(3, 36\)"),
        (
            lambda: LabelSmoothedCrossentropy(0.1)(LABELS["few"], built()(X, LABELS["few"])),
            "`label_smoothing` needs the logits.*label_smoothing=0.1",
        ),
    ],
)
def test_invalid_arguments_raise(call, message):
    with pytest.raises(ValueError, match=message):
        call()
