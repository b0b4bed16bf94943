"""Against loops over layers, targets and positions; the schedule as exact fractions."""

import math
from fractions import Fraction

import numpy as np
import oracles
import pytest
import tensorflow as tf
from auxiliary import (
    LAYERS,
    RANDOM,
    B,
    D,
    T,
    V,
    X,
    Y,
    gradients,
    language_model,
    of_steps,
    total_loss,
    trained_model,
)
from marks import slow

from keras_attn.losses import LabelSmoothedCrossentropy
from keras_attn.losses.auxiliary_losses import layer_shares


@pytest.mark.parametrize("num_layers, total_steps", [(4, 83), (3, 7), (1, 5)])
def test_the_schedule_equals_its_formula(num_layers, total_steps):
    for step in range(0, total_steps + 2, 1 + total_steps // 200):
        p = Fraction(step, total_steps)
        stepped = layer_shares(tf.constant(step), total_steps, num_layers, "step").numpy()
        linear = layer_shares(tf.constant(step), total_steps, num_layers, "linear").numpy()
        assert len(stepped) == len(linear) == num_layers - 1
        for layer in range(1, num_layers):
            end = Fraction(layer, 2 * num_layers)
            assert stepped[layer - 1] == (p < end)
            assert linear[layer - 1] == pytest.approx(float(max(0, 1 - p / end)), abs=1e-6)


def loop_loss(trained, step, weights=None):
    """All terms, from each layer's output and the classifiers' kernels, position by position."""
    predictions = trained(X, training=True)
    heads = {head.name: [oracles.numpy_of(w) for w in head.weights] for head in trained.heads}
    weights = np.ones((B, T)) if weights is None else np.broadcast_to(weights, (B, T))
    total, terms = 0.0, 0
    for layer in range(1, LAYERS + 1):
        hidden = oracles.numpy_of(predictions.hidden_states[layer - 1])
        for k in range(1, trained.num_targets + 1):
            share = 1.0 if k == 1 else trained.target_weight
            if layer < LAYERS:
                end = layer / (2 * LAYERS)
                p = step / trained.total_steps
                share *= {"step": float(p < end), "linear": max(0.0, 1 - p / end)}[trained.schedule]
                if k > 1 and not trained.targets_on_intermediate:
                    continue
            owner = LAYERS if trained.shared_heads else layer
            head = heads.get(f"layer_{owner}_target_{k}")
            own = k == 1 and (layer == LAYERS or trained.shared_heads)
            if own:
                head = oracles.numpy_of(trained.model.embedding.table).T, np.zeros(V)
            losses, count = 0.0, 0
            for b in range(B):
                for t in range(T):
                    if t + k - 1 >= T or Y[b, t + k - 1] == 0:
                        continue
                    logits = hidden[b, t] @ head[0] + head[1]
                    nll = math.log(sum(map(math.exp, logits))) - logits[Y[b, t + k - 1]]
                    losses, count = losses + nll * weights[b, t + k - 1], count + 1
            total, terms = total + share * losses / count, terms + 1
    return total, terms


@pytest.mark.parametrize(
    "step, arguments, terms",
    [
        (15, {"num_targets": 3, "target_weight": 0.3}, 9),
        slow(3, {"schedule": "linear", "targets_on_intermediate": False}, 4),
        slow(0, {"shared_heads": True}, 6),
    ],
)
def test_losses_equal_an_oracle(step, arguments, terms):
    trained = trained_model(**arguments)
    expected = loop_loss(trained, step)
    assert expected[1] == terms
    assert of_steps(trained, step)[0] == pytest.approx(expected[0], rel=1e-5)


@pytest.mark.slow
def test_sample_weight_belongs_to_the_target():
    trained = trained_model()
    weights = RANDOM.uniform(0.0, 2.0, (B, T)).astype("float32")
    expected, _ = loop_loss(trained, 0, weights)
    assert float(total_loss(trained, sample_weight=weights)) == pytest.approx(expected, rel=1e-5)
    by_row, _ = loop_loss(trained, 1, weights[:, :1])
    loss = float(total_loss(trained, sample_weight=weights[:, 0]))
    assert loss == pytest.approx(by_row, rel=1e-5)


@pytest.mark.slow
def test_hidden_states_are_the_outputs_of_the_blocks():
    """And the last is what the model reads, after the norm that closes a stack."""
    trained = trained_model(model=language_model(residual="pre_norm", remat=True))
    model, (logits, states) = trained.model, trained(X, training=True)
    x = model.position(model.embedding(X["token_ids"]))
    for block, hidden in zip(model.depth.blocks, states, strict=True):
        x = block(x)
        last = block is model.depth.blocks[-1]
        np.testing.assert_allclose(hidden, model.depth.norm(x) if last else x, atol=1e-6)
    np.testing.assert_allclose(logits, model(X), atol=1e-6)
    states = model.depth(
        X["token_ids"][..., None] * np.ones(D, "float32"), return_hidden_states=True
    )
    assert len(states) == 2 and len(states[1]) == LAYERS


@pytest.mark.slow
def test_the_shared_classifier_reads_through_the_closing_norm():
    trained = trained_model(
        model=language_model(2, residual="pre_norm"), num_targets=1, shared_heads=True
    )
    assert trained.heads == []
    model, hidden = trained.model, trained(X, training=True).hidden_states[0]
    logits = model.embedding.logits(model.depth.norm(hidden))
    expected = float(LabelSmoothedCrossentropy(0.0)(Y, logits))
    with_it, without = of_steps(trained, 0, 59)
    assert with_it - without == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_a_classifier_whose_time_is_over_gets_no_gradient():
    """Not even numbers that are none reach the loss, or a gradient, from a layer that is over."""
    trained = trained_model()
    dropped = [head for head in trained.heads if head.name.startswith("layer_1_")]
    kept = [head for head in trained.heads if head.name.startswith("layer_2_")]
    assert len(dropped) == len(kept) == 2
    weights = [w for head in dropped + kept for w in head.weights]
    _, before = gradients(trained, 9, weights)
    assert all(np.abs(gradient).max() > 1e-4 for gradient in before)
    for head in dropped:
        head.kernel.assign(np.full(head.kernel.shape, np.nan))
    loss, after = gradients(trained, 10, weights, graph=True)
    assert np.isfinite(loss)
    assert all((gradient == 0).all() for gradient in after[:4])
    assert all(np.abs(gradient).max() > 1e-4 for gradient in after[4:])


@pytest.mark.slow
def test_all_weights_of_the_model_are_trained():
    trained = trained_model(model=language_model(residual="pre_norm"), shared_heads=True)
    weights = trained.model.trainable_weights
    _, by_weight = gradients(trained, 50, weights)
    # A bias of keys cancels in the softmax.
    names = [w.path for w, gradient in zip(weights, by_weight) if not np.abs(gradient).max() > 1e-6]
    assert all("key_bias" in name for name in names)
    assert len(names) == LAYERS and len(weights) > 45
