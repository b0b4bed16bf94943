import functools

import numpy as np
import oracles
import pytest
from models import pages

from keras_attn.models import transformer_xl

CLAMP = 4


@pytest.fixture(scope="module", params=[None, CLAMP])
def clamp(request):
    return request.param


@pytest.fixture(scope="module")
def model(clamp):
    model = transformer_xl(**pages.SIZES, memory_length=pages.T, clamp_length=clamp)
    return pages.scrambled(model)


def relative(layer, x, clamp):
    """Logits of a query with the content and with the distance of each key, pair by pair."""
    query, key = pages.heads(layer, x, "query"), pages.heads(layer, x, "key")
    u, v, kernel = (oracles.numpy_of(w) for w in (layer.score.u, layer.score.v, layer.score.kernel))
    batch, count, length, size = query.shape
    logits = np.zeros((batch, count, length, length))
    for i in range(length):
        for j in range(i + 1):
            distance = min(i - j, clamp or length)
            r = np.einsum("d,dnh->nh", oracles.sinusoids(distance, pages.D, "concat"), kernel)
            by_content = np.sum((query[:, :, i] + u) * key[:, :, j], axis=-1)
            by_distance = np.sum((query[:, :, i] + v) * r, axis=-1)
            logits[:, :, i, j] = (by_content + by_distance) / np.sqrt(size)
    return pages.weigh(layer, x, logits, oracles.causal(length, length))


def test_oracle(model, clamp):
    x, table = pages.embedded(model, pages.IDS)
    for layer in model.depth.blocks:
        x = pages.post_norm(x, pages.sublayers(layer, functools.partial(relative, clamp=clamp)))
    one_pass = pages.without_memory(model)({"token_ids": pages.IDS})
    np.testing.assert_allclose(one_pass, x @ table.T, atol=2e-4)


@pytest.mark.parametrize("ends", [(4, 7, 11), (1, 2, 11)])
def test_limit_segments_with_all_in_memory_equal_one_pass(model, ends):
    one_pass = pages.without_memory(model)({"token_ids": pages.IDS})
    np.testing.assert_allclose(pages.read(model, ends), one_pass, atol=2e-4)


def test_a_longer_memory_takes_the_same_weights(model, clamp):
    """As the paper evaluates: here the short memory forgets, and the long one does not."""
    short, long = (
        transformer_xl(**pages.SIZES, memory_length=length, clamp_length=clamp)
        for length in (2, 20)
    )
    for other in (short, long):
        other.set_weights(model.get_weights())
    expected = pages.read(model, (4, 7, 11))
    np.testing.assert_allclose(pages.read(long, (4, 7, 11)), expected, atol=2e-4)
    assert np.abs(pages.read(short, (4, 7, 11)) - expected)[:, 7:].max() > 1e-2


def test_no_leak(model):
    pages.check_no_leak(model)


def test_steps_and_generation_equal_one_pass(model, clamp):
    pages.check_steps(model)
    if clamp:
        pages.check_generation(model)


@pytest.mark.parametrize("div_val", [1, 2])
def test_cutoffs_make_an_adaptive_softmax(div_val):
    model = transformer_xl(**pages.SIZES, memory_length=3, cutoffs=[4, 9], div_val=div_val)
    pages.scrambled(model)
    table = model.embedding
    assert [tuple(w.shape) for w in table.tables] == [
        (4, 6),
        (5, 6 // div_val),
        (4, 6 // div_val**2),
    ]
    assert model.head.embedding is table
    # All projections but the first are those of the way in.
    assert len(model.head.projections) == (div_val > 1)
    logits = pages.read(model, (4, 7, 11)).astype("float64")
    np.testing.assert_allclose(np.exp(logits).sum(-1), 1.0, atol=1e-5)
