"""The loss against loops in float64, and what must not change it."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from marks import slow

from keras_attn.backend import operations
from keras_attn.losses import LabelSmoothedCrossentropy

B, T, V = 3, 5, 7


def example(seed=0, scale=3.0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(1, V, (B, T))
    labels[0, 3:] = labels[1, 1:] = 0
    return labels, rng.normal(scale=scale, size=(B, T, V)).astype("float32")


def oracle(labels, logits, smoothing, ignore_class=0, weights=None):
    """The mean loss and its gradient, token by token and word by word."""
    logits = np.asarray(logits, "float64")
    vocabulary_size = logits.shape[-1]
    number = int((labels != ignore_class).sum())
    loss, gradient = 0.0, np.zeros_like(logits)
    for index in np.ndindex(labels.shape):
        if labels[index] == ignore_class:
            continue
        weight = 1.0 if weights is None else np.broadcast_to(weights, labels.shape)[index]
        row = logits[index] - logits[index].max()
        softmax = np.exp(row) / np.exp(row).sum()
        for word in range(vocabulary_size):
            target = smoothing / vocabulary_size + (1 - smoothing) * (word == labels[index])
            loss -= weight * target * np.log(softmax[word]) / number
            gradient[index + (word,)] = weight * (softmax[word] - target) / number
    return loss, gradient


def value_and_gradient(loss, labels, logits, jit_compile=False, **kwargs):
    def compute(logits):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            value = loss(labels, logits, **kwargs)
        return value, tape.gradient(value, logits)

    compute = tf.function(compute, jit_compile=True) if jit_compile else compute
    value, gradient = compute(tf.constant(logits))
    return float(value), gradient.numpy()


def assert_close(result, expected, atol=1e-7):
    """Compare two losses, and their gradients."""
    np.testing.assert_allclose(result[0], expected[0], rtol=1e-6)
    np.testing.assert_allclose(result[1], expected[1], atol=atol)


@pytest.mark.parametrize("smoothing, jit_compile", [(0.0, False), (0.6, False), slow(0.1, True)])
def test_loss_and_gradient_equal_an_oracle(smoothing, jit_compile):
    labels, logits = example()
    expected = oracle(labels, logits, smoothing)
    result = value_and_gradient(LabelSmoothedCrossentropy(smoothing), labels, logits, jit_compile)
    assert_close(result, expected)


def test_the_portable_formula_equals_the_fused_one(monkeypatch):
    """The formula of the other backends, run on this one."""
    labels, logits = example()
    monkeypatch.setattr(operations, "crossentropy", operations.crossentropy.portable)
    expected = oracle(labels, logits, 0.1)
    result = value_and_gradient(LabelSmoothedCrossentropy(0.1), labels, logits)
    assert_close(result, expected)


@pytest.mark.parametrize("ignore_class", [None, 0])
@pytest.mark.parametrize(
    "reduction", ["sum_over_batch_size", "mean_with_sample_weight", "sum", "none"]
)
def test_reductions_are_those_of_keras(reduction, ignore_class):
    labels, logits = example()
    weights = np.random.default_rng(5).random(labels.shape).astype("float32")
    theirs = keras.losses.SparseCategoricalCrossentropy(True, ignore_class, reduction)
    ours = LabelSmoothedCrossentropy(0.0, ignore_class, reduction)
    for sample_weight in (None, weights):
        expected = theirs(labels, logits, sample_weight)
        np.testing.assert_allclose(ours(labels, logits, sample_weight), expected, rtol=1e-5)


def test_extreme_logits_stay_exact():
    """Probabilities underflow in float32, their logarithms must not."""
    labels, logits = example(scale=1000.0)
    result = value_and_gradient(LabelSmoothedCrossentropy(0.1), labels, logits)
    expected = logits.astype("float64")
    expected -= expected.max(-1, keepdims=True)
    log_softmax = expected - np.log(np.exp(expected).sum(-1, keepdims=True))
    target = 0.9 * np.eye(V)[labels] + 0.1 / V
    real = labels != 0
    expected = -(target * log_softmax).sum(-1)[real].mean()
    np.testing.assert_allclose(result[0], expected, rtol=1e-6)
    assert np.isfinite(result[1]).all()


def test_padding_may_be_longer_and_hold_anything():
    labels, logits = example()
    loss = LabelSmoothedCrossentropy(0.1)
    value, gradient = value_and_gradient(loss, labels, logits)
    longer_labels = np.pad(labels, ((0, 0), (0, 4)))
    longer_logits = np.pad(logits, ((0, 0), (0, 4), (0, 0)), constant_values=30.0)
    longer_value, longer_gradient = value_and_gradient(loss, longer_labels, longer_logits)
    np.testing.assert_allclose(longer_value, value, rtol=1e-6)
    np.testing.assert_allclose(longer_gradient[:, :T], gradient, atol=1e-8)
    assert not longer_gradient[:, T:].any()


def test_a_batch_without_a_real_token_has_loss_and_gradient_0():
    _, logits = example()
    value, gradient = value_and_gradient(
        LabelSmoothedCrossentropy(0.1), np.zeros((B, T), "int32"), logits
    )
    assert value == 0.0
    assert not gradient.any()


def test_ignore_class_may_lie_outside_the_vocabulary():
    labels, logits = example()
    labels = np.where(labels == 0, -100, labels)
    loss = LabelSmoothedCrossentropy(0.1, ignore_class=-100)
    result = value_and_gradient(loss, labels, logits)
    expected = oracle(labels, logits, 0.1, -100)
    assert_close(result, expected)


def test_labels_outside_the_vocabulary_raise():
    labels, logits = example()
    labels[0, 0], labels[2, 1] = -1, V
    message = rf"in \[0, {V}\), or `ignore_class`. Received: y_true from -1 to {V}, ignore_class=0"
    with pytest.raises(ValueError, match=message):
        LabelSmoothedCrossentropy()(labels, logits)


@pytest.mark.slow
def test_labels_outside_the_vocabulary_give_nan_in_a_graph():
    """Without XLA TensorFlow's CPU refuses the indices."""
    labels, logits = example()
    loss = LabelSmoothedCrossentropy(0.1, reduction="none")
    expected = np.array(loss(labels, logits))
    labels[0, 0], labels[2, 1] = -1, V
    expected[0, 0] = expected[2, 1] = np.nan
    losses = tf.function(loss, jit_compile=True)(labels, logits)
    np.testing.assert_allclose(losses, expected, rtol=1e-6)


def test_tensors_of_unknown_rank_are_refused():
    """TensorFlow makes them of labels or weights whose rank has changed between two batches."""
    labels, logits = example()
    loss, signature = LabelSmoothedCrossentropy(), [tf.TensorSpec(None)]
    for name, call in {
        "y_true": lambda x: loss(x, logits),
        "sample_weight": lambda x: loss(labels, logits, x),
    }.items():
        traced = tf.function(call, signature, autograph=False)
        with pytest.raises(ValueError, match=f"`{name}` must have the same number of axes"):
            traced.get_concrete_function()


@pytest.mark.parametrize("shape", [(B,), (B, T)])
def test_sample_weight_multiplies_losses_and_not_the_divisor(shape):
    labels, logits = example()
    weights = np.random.default_rng(1).uniform(0.0, 2.0, shape).astype("float32")
    result = value_and_gradient(
        LabelSmoothedCrossentropy(0.1), labels, logits, sample_weight=weights
    )
    expected = oracle(labels, logits, 0.1, weights=weights.reshape(B, -1))
    assert_close(result, expected)


@pytest.mark.parametrize("dtype, relative", [("bfloat16", 2**-8), ("float16", 2**-11)])
def test_low_precision_logits_are_computed_in_float32(dtype, relative):
    labels, logits = example()
    logits = tf.cast(logits, dtype)
    value, gradient = value_and_gradient(LabelSmoothedCrossentropy(0.1), labels, logits)
    expected = oracle(labels, tf.cast(logits, "float64").numpy(), 0.1)
    np.testing.assert_allclose(value, expected[0], rtol=1e-6)  # the value is float32 throughout
    np.testing.assert_allclose(  # the gradient is rounded once, at the end
        gradient.astype("float64"), expected[1], rtol=relative, atol=1e-7
    )


@pytest.mark.slow
def test_labels_decide_which_tokens_count_and_not_the_implicit_mask():
    """A mask that calls every token padding changes nothing."""
    tokens = keras.Input((T,), dtype="int32")
    logits = keras.layers.Embedding(V, V, mask_zero=True)(tokens)
    model = keras.Model(tokens, logits)
    model.compile(loss=LabelSmoothedCrossentropy(0.1), run_eagerly=True)
    labels, _ = example()
    padding = np.zeros((B, T), "int32")
    expected = oracle(labels, model(padding).numpy(), 0.1)[0]
    loss = model.evaluate(padding, labels, verbose=0)
    np.testing.assert_allclose(loss, expected, rtol=1e-6)


@pytest.mark.slow
def test_config_round_trip_and_saved_model(tmp_path):
    loss = LabelSmoothedCrossentropy(0.2, ignore_class=3, name="smoothed")
    config = keras.saving.serialize_keras_object(loss)
    again = keras.saving.deserialize_keras_object(config)
    assert (again.label_smoothing, again.ignore_class, again.name) == (0.2, 3, "smoothed")

    model = keras.Sequential([keras.Input((T,)), keras.layers.Embedding(V, V)])
    model.compile("adam", loss, run_eagerly=True)
    labels, _ = example()
    expected = model.evaluate(labels, labels, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.loss.get_config() == loss.get_config()
    assert loaded.evaluate(labels, labels, verbose=0) == pytest.approx(expected, rel=1e-6)


def test_classes_may_be_on_another_axis():
    """As the tokens among which a start and an end choose."""
    labels, logits = example()
    loss, gradient = oracle(labels, logits, 0.1)
    one = LabelSmoothedCrossentropy(0.1, axis=1)
    value, own = value_and_gradient(one, labels, logits.transpose(0, 2, 1))
    assert_close((value, np.transpose(own, (0, 2, 1))), (loss, gradient))
    assert LabelSmoothedCrossentropy.from_config(one.get_config()).axis == 1


@pytest.mark.parametrize("smoothing", [-0.1, 1.0])
def test_label_smoothing_must_be_in_0_1(smoothing):
    with pytest.raises(
        ValueError, match=f"`label_smoothing`.*Received: label_smoothing={smoothing}"
    ):
        LabelSmoothedCrossentropy(smoothing)


def test_the_z_loss_adds_the_square_of_the_logarithm_of_the_sum():
    """In value and gradient, 2 c log(Z) softmax, over real tokens only."""
    (labels, logits), z_loss = example(), 0.7
    expected, slope = oracle(labels, logits, 0.1)
    for place in zip(*np.nonzero(labels), strict=True):
        exponentials = np.exp(logits[place].astype("float64"))
        log_sum, share = np.log(exponentials.sum()), z_loss / np.count_nonzero(labels)
        expected += share * log_sum**2
        slope[place] += share * 2 * log_sum * exponentials / exponentials.sum()
    loss = LabelSmoothedCrossentropy(0.1, z_loss=z_loss)
    result = value_and_gradient(loss, labels, logits)
    assert_close(result, (expected, slope), atol=1e-6)
    low = tf.cast(logits, "bfloat16")
    rounded = tf.cast(low, "float32")
    np.testing.assert_allclose(loss(labels, low), loss(labels, rounded), rtol=1e-6)
    assert LabelSmoothedCrossentropy.from_config(loss.get_config()).z_loss == z_loss


def test_z_losses_below_0_and_of_losses_of_tokens_are_refused():
    with pytest.raises(ValueError, match="`z_loss` must be a number of at least 0.*z_loss=-1"):
        LabelSmoothedCrossentropy(z_loss=-1)
    labels, logits = example()
    with pytest.raises(ValueError, match="`z_loss` needs the logits.*z_loss=0.1"):
        LabelSmoothedCrossentropy(0.0, z_loss=0.1)(labels, logits[..., 0])


def test_labels_and_logits_must_fit():
    labels, logits = example()
    for shape in ((B, T + 1), (1, T)):
        with pytest.raises(ValueError, match=rf"labels of shape \({shape[0]}, {shape[1]}\)"):
            LabelSmoothedCrossentropy()(np.ones(shape, "int32"), logits)
    with pytest.raises(ValueError, match=r"Received: labels of shape \(3, 5, 1\)"):
        LabelSmoothedCrossentropy()(labels[..., None], logits)
