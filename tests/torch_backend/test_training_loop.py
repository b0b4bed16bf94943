"""A training loop of torch's own with our layers, as tests/models has for TensorFlow and JAX."""

import keras
import numpy as np
import pytest
from catalogue_models import make, token_ids

torch = pytest.importorskip("torch", reason="needs the extra `torch`")

IDS, TARGETS = token_ids(), token_ids(1)


def loss_of(targets, logits):
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)(targets, logits)


def test_a_loop_of_torch_trains_as_fit_does():
    first, second = make("models.gpt"), make("models.gpt")
    second.set_weights(first.get_weights())
    optimizer = torch.optim.SGD(first.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(TARGETS, first(IDS, training=True)).backward()
        optimizer.step()
    second.compile(keras.optimizers.SGD(0.1), loss_of)
    second.fit(IDS, TARGETS, batch_size=len(IDS), epochs=3, verbose=0)
    for mine, other in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-5)
