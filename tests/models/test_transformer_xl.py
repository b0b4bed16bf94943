import functools

import numpy as np
import oracles
import pytest
from models import formulas
from models.builders import built

from keras_attn.models import transformer_xl

CLAMP = 4


@functools.cache
def made():
    model = transformer_xl(**formulas.SIZES, memory_length=formulas.T, clamp_length=CLAMP)
    return formulas.scrambled(model)


def relative(layer, x):
    """Return logits by content and by distance, pair by pair."""
    query, key = formulas.heads(layer, x, "query"), formulas.heads(layer, x, "key")
    u, v, kernel = (oracles.numpy_of(w) for w in (layer.score.u, layer.score.v, layer.score.kernel))
    batch, count, length, size = query.shape
    logits = np.zeros((batch, count, length, length))
    for i in range(length):
        for j in range(i + 1):
            distance = min(i - j, CLAMP)
            r = np.einsum("d,dnh->nh", oracles.sinusoids(distance, formulas.D, "concat"), kernel)
            by_content = np.sum((query[:, :, i] + u) * key[:, :, j], axis=-1)
            by_distance = np.sum((query[:, :, i] + v) * r, axis=-1)
            logits[:, :, i, j] = (by_content + by_distance) / np.sqrt(size)
    return formulas.weigh(layer, x, logits, oracles.causal(length, length))


def test_output_equals_the_formula():
    model = made()
    x, table = formulas.embedded(model, formulas.IDS)
    for layer in model.depth.blocks:
        x = formulas.post_norm(x, formulas.sublayers(layer, relative))
    # Segments with a full memory are one pass.
    np.testing.assert_allclose(formulas.read(model, (4, 5, 11)), x @ table.T, atol=2e-4)


@pytest.mark.slow
def test_weights_do_not_depend_on_memory_length():
    """As in the paper's evaluation: the short memory forgets, the long one does not."""
    model = made()
    expected = formulas.read(model, (4, 7, 11))
    for length, is_equal in ((2, False), (20, True)):
        other = transformer_xl(**formulas.SIZES, memory_length=length, clamp_length=CLAMP)
        other.set_weights(model.get_weights())
        far = np.abs(formulas.read(other, (4, 7, 11)) - expected)[:, 7:].max()
        assert far < 2e-4 if is_equal else far > 1e-2


@pytest.mark.slow
def test_cutoffs_select_an_adaptive_softmax():
    model = built("transformer_xl adaptive")
    table = model.embedding
    assert [tuple(w.shape) for w in table.tables] == [(4, 8), (5, 4), (4, 2)]
    assert model.head.embedding is table
    # All projections but the first are those of the way in.
    assert len(model.head.projections) == 1
    logits = formulas.read(model, (4, 7, 11)).astype("float64")
    np.testing.assert_allclose(np.exp(logits).sum(-1), 1.0, atol=1e-5)
