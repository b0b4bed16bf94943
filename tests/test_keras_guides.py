"""The examples of Keras's guides run with our layers.

https://keras.io/guides: the functional API, subclassing, transfer learning, saving, masks, custom
training steps and loops, wrappers, mixed precision and quantization.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_attn import depth, layers, losses, models

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 5, 6)).astype("float32")
IDS = RNG.integers(1, 13, (3, 5))
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 6, "intermediate_dim": 11, "dropout": 0.0}


def block(**options):
    attention = layers.MultiHeadAttention(2, 3, **options)
    return layers.TransformerBlock(attention, layers.FeedForward(7))


def own_model():
    ids = keras.Input((None,), dtype="int32")
    x = layers.TokenEmbedding(13, 6)(ids)
    return keras.Model(ids, keras.layers.Dense(2)(block(name="attention")(x)))


def test_functional_models_share_layers_and_have_several_outputs():
    shared = block()
    first, second = keras.Input((5, 6)), keras.Input((5, 6))
    both = keras.Model([first, second], {"a": shared(first), "b": shared(second)})
    assert len(both.weights) == len(shared.weights)
    outputs = both([X, 2 * X])
    np.testing.assert_allclose(outputs["a"], shared(X), atol=1e-6)
    np.testing.assert_allclose(outputs["b"], shared(2 * X), atol=1e-6)


def test_a_sequential_model_and_its_summary():
    model = keras.Sequential([keras.Input((5, 6)), block(), depth.Stack([block()])])
    lines = []
    model.summary(print_fn=lines.append)
    assert model.count_params() == sum(np.prod(w.shape) for w in model.weights)
    assert "transformer_block" in "".join(lines) and model(X).shape == X.shape


@keras.saving.register_keras_serializable("tests")
class Subclassed(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.blocks = [block() for _ in range(2)]
        self.heads = {"a": layers.FeedForward(7)}

    def call(self, x, training=None):
        for each in self.blocks:
            x = each(x, training=training)
        return self.heads["a"](x)


def test_a_subclassed_model_is_trained_saved_and_restored(tmp_path):
    model = Subclassed()
    model.compile("sgd", "mse", run_eagerly=True)
    model.fit(X, X, verbose=0)
    assert len(model.trainable_weights) == 2 * 16 + 4
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(X), model(X), atol=1e-6)
    model.save_weights(tmp_path / "model.weights.h5")
    other = Subclassed()
    other(X)
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_allclose(other(X), model(X), atol=1e-6)


def test_transfer_learning_with_a_frozen_backbone():
    backbone = models.bert(13, **SIZES)
    backbone.trainable = False
    ids = keras.Input((None,), dtype="int32")
    features = backbone({"token_ids": ids}, training=False)
    model = keras.Model(ids, keras.layers.Dense(2)(features[:, 0]))
    model.compile("sgd", "mse", run_eagerly=True)
    before = backbone.get_weights()
    assert len(model.trainable_weights) == 2
    model.fit(IDS, np.ones((3, 2)), verbose=0)
    for old, new in zip(before, backbone.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    backbone.trainable = True
    assert len(model.trainable_weights) == 2 + len(backbone.weights)


def test_masks_of_keras_reach_our_layers_and_leave_them():
    ids = np.array([[4, 7, 2, 0, 0], [5, 3, 0, 0, 0], [1, 2, 3, 4, 5]])
    embedded = keras.layers.Embedding(13, 6, mask_zero=True)
    each, short = block(), embedded(ids[:1, :3])
    masked = each(embedded(ids))
    np.testing.assert_allclose(masked[:1, :3], each(short), atol=1e-6)
    np.testing.assert_array_equal(keras.src.backend.get_keras_mask(masked), ids != 0)
    pooled = keras.layers.GlobalAveragePooling1D()(masked)
    np.testing.assert_allclose(pooled[1], ops.mean(masked[1, :2], axis=0), atol=1e-6)


class Penalised(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.attention = layers.MultiHeadAttention(2, 3, kernel_regularizer="l2")

    def call(self, x):
        y = self.attention(x, x)
        self.add_loss(ops.mean(ops.square(y)))
        return y


def test_losses_of_layers_are_collected():
    layer = Penalised()
    output = layer(X)
    assert len(layer.losses) == 1 + 4
    np.testing.assert_allclose(layer.losses[0], np.mean(np.square(output)), rtol=1e-5)
    kernels = [w for w in layer.weights if w.name.endswith("kernel")]
    wanted = sum(0.01 * np.sum(np.square(kernel.numpy())) for kernel in kernels)
    np.testing.assert_allclose(sum(map(float, layer.losses[1:])), wanted, rtol=1e-5)


def test_a_train_step_of_ones_own():
    class Own(keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = ops.mean(ops.square(self(x, training=True) - y))
            variables = self.trainable_variables
            self.optimizer.apply(tape.gradient(loss, variables), variables)
            return {"own_loss": loss}

    inputs = keras.Input((5, 6))
    model = Own(inputs, block()(inputs))
    model.compile("adam", run_eagerly=True)
    history = model.fit(X, 0 * X, epochs=3, verbose=0).history["own_loss"]
    assert history[2] < history[0]


def test_time_distributed_and_bidirectional_wrap_our_layers(tmp_path):
    inputs = keras.Input((4, 5, 6))
    cell = depth.ACTRNN(depth.ACTCell(keras.layers.SimpleRNNCell(3), max_steps=2))
    x = keras.layers.TimeDistributed(block())(inputs)
    x = keras.layers.TimeDistributed(keras.layers.Bidirectional(cell))(x)
    model = keras.Model(inputs, x)
    many = RNG.normal(size=(2, 4, 5, 6)).astype("float32")
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert model(many).shape == (2, 4, 6)
    np.testing.assert_allclose(loaded(many), model(many), atol=1e-6)
    first = keras.Model(inputs, model.layers[1].output)(many)[:, 1]
    np.testing.assert_allclose(first, model.layers[1].layer(many[:, 1]), atol=1e-5)


def test_mixed_precision_by_policy_and_by_layer():
    attention = layers.MultiHeadAttention(2, 3, dtype="mixed_bfloat16")
    assert attention(X, X).dtype == "bfloat16" and attention.query_kernel.dtype == "float32"
    keras.config.set_dtype_policy("mixed_float16")
    try:
        each = block()
        assert each(X).dtype == "float16"
    finally:
        keras.config.set_dtype_policy("float32")
    assert {w.dtype for w in each.weights} == {"float32"}


def test_stateless_calls_change_no_weight():
    layer = block(dropout=0.5)
    layer.build((3, 5, 6))
    trainable = [2 * w.value for w in layer.trainable_variables]
    fixed = [w.value for w in layer.non_trainable_variables]
    output, fixed_after = layer.stateless_call(trainable, fixed, X, training=True)
    assert len(fixed_after) == len(fixed) and output.shape == X.shape
    np.testing.assert_array_equal(fixed[0], layer.non_trainable_variables[0])


def test_an_own_model_is_quantized():
    model = own_model()
    wanted = model(IDS)
    model.quantize("int8", filters=lambda layer: not isinstance(layer, keras.layers.InputLayer))
    np.testing.assert_allclose(model(IDS), wanted, atol=0.05)
    assert "int8" in {w.dtype for w in model.weights}


@pytest.mark.slow
def test_callbacks_of_keras(tmp_path):
    model = own_model()
    labels = IDS % 2
    callbacks = [
        keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", monitor="loss"),
        keras.callbacks.EarlyStopping("loss", patience=1, restore_best_weights=True),
        keras.callbacks.BackupAndRestore(tmp_path / "backup"),
        keras.callbacks.SwapEMAWeights(),
    ]
    model.compile(
        keras.optimizers.Adam(use_ema=True, gradient_accumulation_steps=2),
        losses.LabelSmoothedCrossentropy(),
        weighted_metrics=["accuracy"],
    )
    model.fit(IDS, labels, sample_weight=np.ones((3, 5)), epochs=3, verbose=0, callbacks=callbacks)
    loaded = keras.models.load_model(tmp_path / "best.keras")
    assert loaded(IDS).shape == (3, 5, 2)


@pytest.mark.slow
def test_keras_exports_our_layers_and_saves_whole_models_as_h5(tmp_path):
    model = own_model()
    model.export(tmp_path / "export", verbose=False)
    served = tf.saved_model.load(tmp_path / "export")
    np.testing.assert_allclose(served.serve(IDS.astype("int32")), model(IDS), atol=1e-5)
    model.save(tmp_path / "model.h5")
    np.testing.assert_allclose(
        keras.models.load_model(tmp_path / "model.h5")(IDS), model(IDS), atol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"jit_compile": True}, {"run_eagerly": True}])
def test_fit_compiled_and_eager_learn_the_same(options):
    histories = []
    for each in ({}, options):
        keras.utils.set_random_seed(3)
        model = own_model()
        model.compile("sgd", losses.LabelSmoothedCrossentropy(), **each)
        histories.append(model.fit(IDS, IDS % 2, epochs=2, verbose=0).history["loss"])
    np.testing.assert_allclose(*histories, rtol=1e-4)
