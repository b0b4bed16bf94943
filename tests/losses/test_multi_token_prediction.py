"""Targets after the next token by a block each: `AuxiliaryLosses(block=...)`."""

import keras
import numpy as np
import pytest
from auxiliary import (
    LAYERS,
    B,
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

from keras_attn.losses import AuxiliaryLosses, LabelSmoothedCrossentropy

K, WEIGHT = 3, 0.7


def multi_token(**arguments):
    settings = {"num_targets": K, "target_weight": WEIGHT, "schedule": None, "block": target_block}
    return trained_model(model=language_model(residual="pre_norm"), **{**settings, **arguments})


def loss_of_target(k, logits):
    """The mean loss of the k-th token after each position, token by token."""
    total, count = 0.0, 0
    for b, t in np.ndindex(B, T - k + 1):
        label, row = Y[b, t + k - 1], np.asarray(logits[b, t], "float64")
        if label:
            total, count = total + np.log(np.exp(row).sum()) - row[label], count + 1
    return total / count


def expected_loss(trained):
    """The model's loss, and those of blocks that read what its last layer reads."""
    model, states = trained.model, trained(X, training=True).hidden_states
    loss, table = plain_loss(trained), np.asarray(model.embedding.table)
    for k, block in enumerate(trained.block, 2):
        hidden = model.depth.norm(block(states[LAYERS - 2]))
        loss += WEIGHT * loss_of_target(k, hidden @ table.T)
    return loss


@pytest.mark.slow
def test_each_target_has_a_block_that_reads_what_the_last_layer_reads():
    trained = multi_token()
    assert float(total_loss(trained)) == pytest.approx(expected_loss(trained), rel=1e-5)
    model, states = trained.model, trained(X, training=True).hidden_states
    table = np.asarray(model.embedding.table)
    # Read from the last layer's output, as classifiers without a block are, it is another loss.
    wrong = model.depth.norm(trained.block[0](states[LAYERS - 1])) @ table.T
    right = model.depth.norm(trained.block[0](states[LAYERS - 2])) @ table.T
    assert abs(loss_of_target(2, wrong) - loss_of_target(2, right)) > 1e-2


@pytest.mark.slow
def test_intermediate_layers_keep_their_classifiers():
    trained = multi_token(schedule="step", total_steps=60)
    names = [head.name for head in trained.heads]
    assert names == [f"layer_{n}_target_{k}" for n in range(1, LAYERS) for k in range(1, K + 1)]
    begin, end = of_steps(trained, 0, 59)
    assert end == pytest.approx(expected_loss(trained), rel=1e-5) and begin > end + 1


@pytest.mark.slow
def test_a_run_saves_its_blocks_and_leaves_the_model_without_them(tmp_path):
    trained = multi_token()
    trained.save(tmp_path / "run.keras")
    again = keras.models.load_model(tmp_path / "run.keras")
    assert isinstance(again, AuxiliaryLosses) and len(again.block) == K - 1
    again.compile("sgd", LabelSmoothedCrossentropy(0.0))
    assert float(total_loss(again)) == pytest.approx(float(total_loss(trained)), rel=1e-6)
    assert trained.model.count_params() == language_model(residual="pre_norm").count_params()
    assert trained(X).shape == (B, T, V)
