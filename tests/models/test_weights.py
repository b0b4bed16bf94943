"""No weight of a model is dead, or a copy of another."""

import keras
import numpy as np
import pytest

from keras_attn.memory import StatefulSegments
from keras_attn.models import (
    adaptive_span_transformer,
    bert,
    compressive_transformer,
    deep_char_transformer,
    gpt,
    image_transformer,
    reformer,
    sparse_transformer,
    transformer,
    transformer_xl,
    universal_transformer,
)

SIZES = {
    "vocabulary_size": 11,
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 6,
    "intermediate_dim": 7,
}
IDS = np.array([[5, 7, 9, 10, 3], [8, 4, 3, 0, 0]])
MODELS = {
    "transformer": (transformer, {}, {"source_ids": IDS, "target_ids": IDS}),
    "universal": (
        universal_transformer,
        {"depth": "act", "transition": "separable_conv", "num_layers": 3},
        {"source_ids": IDS, "target_ids": IDS},
    ),
    "image": (image_transformer, {"image_shape": (1, 5, 1)}, {"token_ids": IDS}),
    "gpt": (gpt, {"max_length": 5}, {"token_ids": IDS}),
    "bert": (bert, {"max_length": 5}, {"token_ids": IDS, "segment_ids": IDS % 2}),
    "deep char": (deep_char_transformer, {"max_length": 5}, {"token_ids": IDS}),
    "xl": (transformer_xl, {"memory_length": 3}, {"token_ids": IDS}),
    # Five tokens are enough for compressed ones.
    "compressive": (compressive_transformer, {"memory_length": 1, "rate": 2}, {"token_ids": IDS}),
    "adaptive softmax": (
        transformer_xl,
        {"memory_length": 3, "cutoffs": [4, 8], "div_val": 2},
        {"token_ids": IDS},
    ),
    # Spans of 0 at first, which the loss of spans cannot make shorter.
    "span": (
        adaptive_span_transformer,
        {"max_span": 8, "ramp": 2, "span_loss": 0.0},
        {"token_ids": IDS},
    ),
    "sparse": (sparse_transformer, {"image_shape": (2, 3, 1)}, {"token_ids": IDS}),
    "reformer": (
        reformer,
        {"axial_shape": (2, 3), "chunk_length": 2, "across_buckets": True},
        {"token_ids": IDS},
    ),
}


@pytest.mark.parametrize("build, arguments, inputs", MODELS.values(), ids=MODELS)
def test_each_weight_has_its_own_initial_numbers(build, arguments, inputs):
    """Tables from one initializer object must have different numbers."""
    random = [w.numpy().ravel() for w in build(**{**SIZES, **arguments}).weights]
    random = [w for w in random if np.ptp(w) > 0]
    for i, first in enumerate(random):
        for second in random[:i]:
            count = min(len(first), len(second))
            assert np.any(first[:count] != second[:count])


@pytest.mark.slow
def test_xla_trains_the_same():
    """XLA is requested here, since Keras chooses it on accelerators only."""
    weights = []
    for jit_compile in (False, True):
        keras.utils.set_random_seed(0)
        model = gpt(**SIZES, max_length=5, dropout=0.0)
        model.compile(
            keras.optimizers.SGD(0.1),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=jit_compile,
        )
        model.fit({"token_ids": IDS}, IDS, verbose=0)
        weights.append(model.get_weights())
    for plain, compiled in zip(*weights, strict=True):
        np.testing.assert_allclose(compiled, plain, atol=1e-5)


@pytest.mark.parametrize(
    "name, policy",
    [
        ("transformer", "mixed_bfloat16"),
        ("gpt", "mixed_float16"),
        ("bert", "mixed_bfloat16"),
        pytest.param("deep char", "mixed_float16", marks=pytest.mark.slow),
        ("xl", "mixed_bfloat16"),
        pytest.param("compressive", "mixed_bfloat16", marks=pytest.mark.slow),
        pytest.param("adaptive softmax", "mixed_float16", marks=pytest.mark.slow),
        pytest.param("span", "mixed_bfloat16", marks=pytest.mark.slow),
        pytest.param("sparse", "mixed_float16", marks=pytest.mark.slow),
        ("reformer", "mixed_bfloat16"),
        ("universal", "mixed_bfloat16"),
    ],
)
def test_training_changes_every_weight(name, policy):
    build, arguments, inputs = MODELS[name]
    keras.config.set_dtype_policy(policy)
    model = build(**{**SIZES, **arguments}, dropout=0.1)
    if isinstance(model.output, dict):
        model = StatefulSegments(model, batch_size=2)
    model.compile(
        keras.optimizers.Adam(0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        run_eagerly=name != "gpt",  # two steps take less time than a trace
    )
    before = model.get_weights()
    history = model.fit(inputs, IDS, epochs=2, verbose=0)
    assert np.all(np.isfinite(history.history["loss"]))
    unchanged = [
        variable.path
        for variable, old in zip(model.weights, before, strict=True)
        if variable.trainable and np.array_equal(variable.numpy(), old)
    ]
    # A key's bias adds the same to every logit of a query, which the softmax does not see.
    assert [path for path in unchanged if "key_bias" not in path] == []
    assert all(np.all(np.isfinite(w)) for w in model.get_weights())
