"""The wrapped model, `fit` and `evaluate`, files of a run, and refused arguments."""

import keras
import numpy as np
import oracles
import pytest
import tensorflow as tf
from auxiliary import (
    B,
    D,
    T,
    V,
    X,
    Y,
    language_model,
    of_steps,
    plain_loss,
    target_block,
    total_loss,
    trained_model,
)

from keras_attn.callbacks import Resume
from keras_attn.depth import Reversible
from keras_attn.losses import AuxiliaryLosses, LabelSmoothedCrossentropy
from keras_attn.metrics import Perplexity
from keras_attn.models import CausalLanguageModel


@pytest.fixture(scope="module")
def small():
    return language_model(1)


@pytest.mark.slow
def test_without_auxiliary_losses_it_is_the_model():
    """One target and no intermediate losses: the same weights after training, to the last bit."""
    histories, weights = [], []
    for wrap in (lambda model: model, lambda model: AuxiliaryLosses(model, 9, 1, schedule=None)):
        keras.utils.set_random_seed(7)
        model = wrap(language_model(2, dropout=0.3))
        model.compile(
            keras.optimizers.Adam(0.01),
            LabelSmoothedCrossentropy(0.1),
            metrics=[Perplexity()],
            run_eagerly=True,
        )
        histories.append(model.fit(X, Y, epochs=1, verbose=0, batch_size=2, shuffle=False).history)
        weights.append([oracles.numpy_of(w) for w in model.trainable_weights])
    assert histories[0] == histories[1] and len(weights[0]) == len(weights[1])
    assert all((a == b).all() for a, b in zip(*weights, strict=True))


@pytest.mark.slow
def test_the_wrapped_model_has_no_classifiers():
    """Weights, operations and answers are those of a model that was never wrapped."""
    alone = language_model(2)
    trained = trained_model(model=language_model(2))
    total_loss(trained)
    assert trained.count_params() - 1 == alone.count_params() + 3 * (D + 1) * V
    assert [w.shape for w in trained.model.weights] == [w.shape for w in alone.weights]
    signature = {"token_ids": tf.TensorSpec((None, None), "int32")}
    kinds = []
    for model in (alone, trained.model):
        graph = tf.function(model).get_concrete_function(signature).graph
        kinds.append(sorted(op.type for op in graph.get_operations()))
    assert kinds[0] == kinds[1]
    alone.set_weights(trained.model.get_weights())
    np.testing.assert_array_equal(trained(X), alone(X))


@pytest.mark.slow
def test_evaluation_is_that_of_the_model_and_counts_no_step(small):
    trained = trained_model(model=small)
    loss = trained.evaluate(X, Y, verbose=0)
    assert loss == pytest.approx(plain_loss(trained), rel=1e-5)
    assert int(trained.step) == 0


@pytest.mark.slow
def test_a_killed_or_loaded_run_resumes_at_its_progress(tmp_path):
    trained = trained_model(total_steps=5, model=language_model(2))
    trained.fit(X, Y, epochs=2, verbose=0, callbacks=[Resume(tmp_path / "progress")])
    again = trained_model(total_steps=5, model=language_model(2))
    assert Resume(tmp_path / "progress").initial_epoch(again) == 2
    trained.save(tmp_path / "run.keras")
    loaded = keras.saving.load_model(tmp_path / "run.keras")
    assert again.progress == loaded.progress == trained.progress == 0.4
    assert isinstance(loaded.model, CausalLanguageModel) and len(loaded.heads) == 3
    histories = [run.fit(X, Y, epochs=1, verbose=0).history for run in (trained, loaded)]
    assert histories[1]["loss"] == pytest.approx(histories[0]["loss"], rel=1e-6)


@pytest.mark.slow
def test_dtype_policies():
    reference = trained_model()
    expected = of_steps(reference, 0)[0]
    keras.config.set_dtype_policy("mixed_bfloat16")
    trained = trained_model()
    trained.set_weights(reference.get_weights())
    assert all(head.compute_dtype == trained.model.depth.compute_dtype for head in trained.heads)
    loss = total_loss(trained)
    assert keras.backend.standardize_dtype(loss.dtype) == "float32"
    assert float(loss) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"total_steps": 0}, "`total_steps`.*total_steps=0"),
        ({"num_targets": 0}, "`num_targets`.*num_targets=0"),
        ({"schedule": "cosine"}, "`schedule`.*'cosine'"),
        ({"target_weight": -1}, "`target_weight`.*target_weight=-1"),
        ({"block": lambda k: None}, "`block` must be a function from k.*lambda"),
        ({"block": []}, r"a list of K - 1 blocks.*block=\[\]"),
        ({"block": target_block}, "`block` needs a model of two layers.*a model of 1 layer"),
    ],
)
def test_bad_arguments_raise(small, arguments, message):
    with pytest.raises(ValueError, match=message):
        AuxiliaryLosses(small, **{"total_steps": 9, **arguments})


def test_models_without_outputs_of_layers_are_refused():
    with pytest.raises(ValueError, match="`model` must give each layer's output"):
        AuxiliaryLosses(language_model(1, residual="pre_norm", make=Reversible), 9)
    message = "`model`.*`depth` that is a `Stack`.*Received: model=<Sequential"
    with pytest.raises(ValueError, match=message):
        AuxiliaryLosses(keras.Sequential([keras.Input((3,))]), 9)


def test_one_hot_labels_are_refused(small):
    trained = trained_model(model=small)
    with pytest.raises(ValueError, match=r"`y` must have shape \(3, 7\).*\(3, 7, 13\)"):
        trained.compute_loss(X, np.eye(V)[Y], trained(X, training=True))


def test_rows_of_several_sequences_are_refused(small):
    """Or else the targets of a sequence would end in the next one; evaluated they may be."""
    trained = trained_model(model=small)
    packed = {**X, "segment_ids": np.ones((B, T), "int32")}
    with pytest.raises(ValueError, match="several sequences.*segment_ids, token_ids"):
        trained(packed, training=True)
    np.testing.assert_allclose(trained(packed), trained(X), atol=1e-5)
