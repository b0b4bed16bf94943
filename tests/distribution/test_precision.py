"""Models learn in low precision as it does in float32: loss curves within its own noise.

The noise is what float32 itself does from other initial weights, measured here. What is learned is
a text that counts: after token n comes n + 1.
"""

import functools
import itertools

import keras
import numpy as np
import pytest

from keras_attn import models
from keras_attn.losses import LabelSmoothedCrossentropy
from keras_attn.memory import StatefulSegments

pytestmark = pytest.mark.slow

V, B, T, STEPS = 11, 7, 12, 20
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 23, "dropout": 0.0}
SEEDS = 3

# A dense stack, and a memory with spans.
MODELS = {
    "gpt": lambda: models.gpt(V, **SIZES, max_length=T),
    "adaptive_span_transformer": lambda: StatefulSegments(
        models.adaptive_span_transformer(V, **SIZES, max_span=5, ramp=3), batch_size=B
    ),
}


def batches():
    """Inputs and labels of each step."""
    generator = np.random.default_rng(0)
    for _ in range(STEPS):
        text = 1 + (generator.integers(0, V - 2, (B, 1)) + np.arange(T + 1)) % (V - 2)
        yield {"token_ids": text[:, :-1]}, text[:, 1:]


def curves(name, policy, seeds):
    """The losses (seeds, STEPS) of a model from several initial weights."""
    keras.config.set_dtype_policy(policy)
    keras.utils.set_random_seed(0)
    model = MODELS[name]()
    model.compile(keras.optimizers.Adam(0.01), LabelSmoothedCrossentropy(0.0), jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    weights, state = model.get_weights(), [x.numpy() for x in model.optimizer.variables]
    losses = []
    for seed in range(seeds):
        generator = np.random.default_rng(seed)
        model.set_weights([_reordered(weight, generator) if seed else weight for weight in weights])
        for variable, value in zip(model.optimizer.variables, state, strict=True):
            variable.assign(value)
        steps = (model.train_on_batch(*batch, return_dict=True) for batch in batches())
        losses.append([logs["loss"] for logs in steps])
    return np.array(losses)


def _reordered(weight, generator):
    """The same numbers elsewhere: as good a start, and no model has to be made for it."""
    return generator.permutation(weight.ravel()).reshape(weight.shape)


@functools.cache
def with_noise(name):
    """The curve of float32, and how far float32 is from itself with other weights."""
    by_seed = curves(name, "float32", SEEDS)
    pairs = itertools.combinations(by_seed, 2)
    return by_seed[0], np.mean([np.abs(one - other).mean() for one, other in pairs])


@pytest.mark.parametrize(
    "name, policy",
    [
        ("gpt", "mixed_float16"),
        ("adaptive_span_transformer", "mixed_bfloat16"),
    ],
)
def test_loss_curves_are_within_the_noise_of_float32(name, policy):
    float32, noise = with_noise(name)
    (low,) = curves(name, policy, 1)
    assert np.all(np.isfinite(low))
    assert np.abs(low - float32).mean() < noise / 2
    assert low[-5:].mean() < 0.7 * low[0]


def test_loss_curves_of_low_precision_weights_are_outside_the_noise():
    """They forget small steps, as mixed precision would without its float32 weights."""
    float32, noise = with_noise("gpt")
    (low,) = curves("gpt", "bfloat16", 1)
    assert np.abs(low - float32).mean() > noise
