"""A model that keeps its memory between the batches of fit, evaluate and predict."""

import keras
import numpy as np
import oracles
import pytest
import segments
import tensorflow as tf
from keras import ops
from segments import B, D, L

from keras_attn.layers import TokenEmbedding
from keras_attn.losses import LabelSmoothedCrossentropy
from keras_attn.memory import SegmentMemory, StatefulSegments
from keras_attn.models import CausalLanguageModel
from keras_attn.text import SegmentStreams

V, M, LENGTH, WIDTH = 13, 20, 12, 3
IDS = np.random.default_rng(2).integers(1, V, (B, LENGTH)).astype("int32")
LABELS = np.roll(IDS, -1, axis=1)
LOSS = LabelSmoothedCrossentropy(0.0)


def cut(rows):
    """Rows (B, T, ...) as batches of segments, one after the other."""
    return np.concatenate(np.split(np.asarray(rows), LENGTH // WIDTH, axis=1))


def language_model(memory_length=M, layers=1):
    memory = SegmentMemory(memory_length)
    return CausalLanguageModel(TokenEmbedding(V, D), segments.built(layers=layers), memory=memory)


def compiled(batch_size=B, rate=0.5, run_eagerly=True, **arguments):
    """Return a model that trains eagerly, since a few steps take less time than a trace."""
    keras.utils.set_random_seed(5)
    model = StatefulSegments(language_model(**arguments), batch_size)
    model.compile(keras.optimizers.SGD(rate), LOSS, run_eagerly=run_eagerly, jit_compile=False)
    return model


@pytest.fixture(scope="module")
def model():
    model = compiled(run_eagerly=False)
    oracles.scramble(model.model, scale=0.8)
    return model


@pytest.fixture(scope="module")
def whole(model):
    plain = CausalLanguageModel(model.model.embedding, model.model.depth)
    return np.asarray(plain({"token_ids": IDS}))


def lengths(model):
    return model.state["memory_length"].numpy().tolist()


def test_predict_equals_one_pass_and_restores_the_memory(model, whole):
    model.reset()
    first = model(IDS[:, :5])
    logits = model.predict(cut(IDS), batch_size=B, verbose=0)
    np.testing.assert_allclose(logits, cut(whole), atol=2e-4)
    assert lengths(model) == [5] * B
    second = model(IDS[:, 5:])
    np.testing.assert_allclose(np.concatenate([first, second], 1), whole, atol=2e-4)
    model.reset()
    assert lengths(model) == [0] * B
    np.testing.assert_allclose(model(IDS), whole, atol=2e-4)


def test_the_second_step_of_training_reads_the_memory_of_the_first(model, whole):
    model.reset()
    for ids, labels, expected in zip(
        *(np.split(x, 2, 1) for x in (IDS, LABELS, whole)), strict=True
    ):
        loss = model.compute_loss(y=labels, y_pred=model(ids, training=True))
        np.testing.assert_allclose(loss, LOSS(labels, expected), atol=2e-4)


@pytest.mark.slow
def test_fit_equals_a_loop_that_carries_the_memory():
    rate = 0.1  # a larger one amplifies rounding errors from step to step
    model, loop = compiled(rate=rate, run_eagerly=False), language_model()
    loop.set_weights(model.model.get_weights())
    history = model.fit(cut(IDS), cut(LABELS), batch_size=B, epochs=2, verbose=0).history
    losses = []
    for _ in range(2):
        state = loop.initial_memory(B)
        for ids, labels in zip(np.split(IDS, 4, 1), np.split(LABELS, 4, 1), strict=True):
            with tf.GradientTape() as tape:
                outputs = loop({"token_ids": tf.constant(ids), **state})
                loss = LOSS(labels, outputs.pop("logits"))
            losses.append(float(loss))
            weights = loop.trainable_weights
            for weight, gradient in zip(
                weights, tape.gradient(loss, [w.value for w in weights]), strict=True
            ):
                weight.assign_sub(rate * tf.convert_to_tensor(gradient))
            state = outputs
    np.testing.assert_allclose(
        history["loss"], np.mean(np.split(np.array(losses), 2), 1), rtol=1e-5
    )
    oracles.check_each(model.model.get_weights(), loop.get_weights(), atol=1e-5)


@pytest.mark.slow
def test_validation_and_training_do_not_mix():
    """The same weights with and without validation, and validation as it is alone."""
    validation = cut(IDS[:, ::-1]), cut(LABELS[:, ::-1])
    alone, validated = compiled(), compiled()
    alone.fit(cut(IDS), cut(LABELS), batch_size=B, verbose=0)
    history = validated.fit(
        cut(IDS), cut(LABELS), batch_size=B, validation_data=validation, verbose=0
    ).history
    for weight, expected in zip(validated.weights, alone.weights, strict=True):
        np.testing.assert_array_equal(weight, expected)
    loss = alone.evaluate(*validation, batch_size=B, verbose=0)
    np.testing.assert_allclose(loss, history["val_loss"][-1], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("whole_batch", [False, True])
def test_reset_separates_episodes_of_one_row(model, whole, whole_batch):
    """The second row, or every one, begins anew with the third segment."""
    begins = np.ones(B, bool) if whole_batch else np.arange(B) == 1
    reset = [np.zeros(B, bool), np.zeros(B, bool), begins, np.zeros(B, bool)]
    if whole_batch:
        reset = [x[0] for x in reset]
    ids = np.split(IDS, 4, 1)
    dataset = tf.data.Dataset.from_tensor_slices({"token_ids": ids, "reset": reset})
    output = np.concatenate(np.split(model.predict(dataset, verbose=0), 4), axis=1)
    plain = CausalLanguageModel(model.model.embedding, model.model.depth)
    anew = np.asarray(plain({"token_ids": IDS[:, 6:]}))
    expected = np.array(whole)
    expected[begins, 6:] = anew[begins]
    np.testing.assert_allclose(output, expected, atol=2e-4)
    assert np.abs(expected - whole).max() > 0.02


@pytest.mark.slow
def test_smaller_batches_continue_the_first_rows_only(model, whole):
    """In a batch of known and of unknown size."""
    unknown = tf.function(model, [tf.TensorSpec([None, None], tf.int32)], autograph=False)
    model.reset()
    model(IDS[:, :4])
    few = unknown(IDS[:2, 4:7])
    one = model(IDS[:1, 7:])
    np.testing.assert_allclose(few, whole[:2, 4:7], atol=2e-4)
    np.testing.assert_allclose(one, whole[:1, 7:], atol=2e-4)
    assert lengths(model) == [12, 7, 4]
    np.testing.assert_allclose(model(IDS[:, 4:])[2:], whole[2:, 4:], atol=2e-4)
    with pytest.raises(tf.errors.InvalidArgumentError, match="more rows than the memory"):
        unknown(np.tile(IDS, (2, 1)))


@pytest.mark.slow
def test_first_batch_sets_the_number_of_rows():
    inner = language_model()
    model = StatefulSegments(inner)
    model.compile(jit_compile=False)
    model.predict(SegmentStreams(IDS[0], 4, 2).as_dataset(), verbose=0)
    assert model.batch_size == 4 and model.state["memory"].shape == (4, 1, M, D)
    model = StatefulSegments(inner)
    model({"reset": ops.array(True), "token_ids": ops.array(IDS)})
    assert model.batch_size == B


@pytest.mark.slow
def test_memory_is_saved_and_restored(tmp_path):
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = compiled(memory_length=4)
    model.train_on_batch(IDS[:, :3], LABELS[:, :3])
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert type(again) is StatefulSegments and again.batch_size == B
    assert lengths(again) == [3] * B
    assert again.state["memory"].dtype == model.model.depth.compute_dtype
    for variable, expected in zip(again.variables, model.variables, strict=True):
        np.testing.assert_array_equal(oracles.numpy_of(variable), oracles.numpy_of(expected))
    np.testing.assert_array_equal(again(IDS[:, 3:]), model(IDS[:, 3:]))
    model.save_weights(tmp_path / "model.weights.h5")
    again.reset()
    again.load_weights(tmp_path / "model.weights.h5")
    assert lengths(again) == [4] * B


def test_the_memory_of_other_rows_is_not_restored(tmp_path):
    inner = language_model()
    StatefulSegments(inner, 4).save_weights(tmp_path / "model.weights.h5")
    with pytest.raises(ValueError, match="4 rows.*3 rows"):
        StatefulSegments(inner, 3).load_weights(tmp_path / "model.weights.h5")


@pytest.mark.slow
def test_more_outputs_and_inputs_than_one():
    """What is not memory passes through by name."""
    x, y = keras.Input((None, D), name="x"), keras.Input((1, D), name="y")
    state = {
        "memory": keras.Input((L, None, D), name="memory"),
        "memory_length": keras.Input((), dtype="int32", name="memory_length"),
    }
    memory = SegmentMemory(M)
    output, read = segments.built()(x + y, **state)
    outputs = {"output": output, "twice": 2 * output, **memory.extend(state, read)}
    inner = keras.Model({"x": x, "y": y, **state}, outputs)
    inner.memory = memory
    inner.initial_memory = lambda batch_size: memory.initial(batch_size, L, D)
    model = StatefulSegments(inner)
    inputs = {"x": oracles.random(B, 7, D), "y": oracles.random(B, 1, D)}
    results = model.predict_on_batch(inputs)
    assert set(results) == {"output", "twice"}
    np.testing.assert_array_equal(results["twice"], 2 * results["output"])
    with pytest.raises(ValueError, match=r"`inputs` must be a dict of \['x', 'y'\]"):
        model(inputs["x"])


def test_invalid_arguments_raise(model):
    inner = model.model
    with pytest.raises(ValueError, match="`model` must have a memory"):
        StatefulSegments(CausalLanguageModel(inner.embedding, inner.depth))
    with pytest.raises(ValueError, match="`batch_size`.*batch_size=0"):
        StatefulSegments(inner, 0)
    with pytest.raises(ValueError, match="4 rows, 3 are kept"):
        model(np.ones((4, 2), "int32"))
    ids = np.ones((B, 2), "int32")
    for flags in (np.ones(B + 1), np.ones(2), np.ones((B, 2))):
        with pytest.raises(ValueError, match=r"`reset` must have shape \(1,\) or \(3,\)"):
            model({"token_ids": ids, "reset": flags})
    for inputs in ({"token_ids": ids, "resets": np.ones(B)}, {"reset": np.ones(B)}):
        for stateful in (model, StatefulSegments(inner)):
            with pytest.raises(ValueError, match=r"`inputs` must be a dict of \['token_ids'"):
                stateful(inputs)
    with pytest.raises(ValueError, match="shuffle=True"):
        model.fit(cut(IDS), cut(LABELS), B, shuffle=True)
    unknown = StatefulSegments(inner)
    with pytest.raises(ValueError, match="`batch_size` must be given"):
        unknown(keras.Input((None,), dtype="int32"))
