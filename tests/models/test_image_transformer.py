"""Images pixel by pixel, against the paper in loops; writing against one pass over all."""

import math

import numpy as np
import oracles
import pytest

from keras_attn.backend.operations import uniform
from keras_attn.generation import Sample, SamplePixels, generate
from keras_attn.losses import MixtureOfLogistics
from keras_attn.models import ImageTokens, image_transformer, super_resolution_transformer
from keras_attn.patterns import BlockLocal1D, BlockLocal2D, Local

B, HEIGHT, WIDTH, CHANNELS, V, K = 2, 3, 4, 2, 5, 3
SHAPE, D = (HEIGHT, WIDTH, CHANNELS), 8
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": D, "intermediate_dim": 11}
IMAGES = np.random.default_rng(1).integers(0, V, (B, *SHAPE)).astype("uint8")
ONE, BLOCK, FLANGE = BlockLocal1D(5, lookback=3), (2, 3), (1, 2)
COLUMNS = WIDTH * CHANNELS
TWO = BlockLocal2D((HEIGHT, COLUMNS), BLOCK, FLANGE)
PATTERNS = pytest.mark.parametrize("pattern", [ONE, TWO], ids=["1d", "2d"])


def made(pattern=None, **arguments):
    model = image_transformer(V + 2, SHAPE, **SIZES, pattern=pattern, **arguments)
    oracles.scramble(model, scale=0.6)
    return model


def allowed_of(pattern, length):
    """Return the mask (T, T) by section 3.3, and the row and column of each token."""
    places = [divmod(t, COLUMNS) for t in range(length)]
    if pattern is ONE:
        start = [t // 5 * 5 - 3 for t in range(length)]
        return [[start[i] <= j <= i for j in range(length)] for i in range(length)], places
    places.sort(key=lambda p: (p[0] // BLOCK[0], p[1] // BLOCK[1], *p))

    def near(i, j):
        top, left = (places[i][a] // BLOCK[a] * BLOCK[a] for a in (0, 1))
        in_rows = top - FLANGE[0] <= places[j][0] < top + BLOCK[0]
        return in_rows and left - FLANGE[1] <= places[j][1] < left + BLOCK[1] + FLANGE[1]

    return [[j <= i and near(i, j) for j in range(length)] for i in range(length)], places


@PATTERNS
def test_output_equals_the_formula(pattern):
    model = made(pattern)
    tokens = ImageTokens.of(model)
    ids = tokens.inputs(IMAGES).numpy()
    length = HEIGHT * COLUMNS
    allowed, places = allowed_of(pattern, length)
    table = oracles.numpy_of(model.embedding.table)
    x = math.sqrt(D) * table[ids]
    for t, (row, column) in enumerate(places):
        x[:, t, : D // 2] += oracles.sinusoids(row, D // 2)
        x[:, t, D // 2 :] += oracles.sinusoids(column, D // 2)
    for layer in model.depth.blocks:
        x = oracles.block(x, oracles.block_weights(layer), np.array(allowed))
    np.testing.assert_allclose(model({"token_ids": ids}), x @ table.T, atol=1e-4)
    for t, (row, column) in enumerate(places):
        value = IMAGES[:, row, column // CHANNELS, column % CHANNELS]
        np.testing.assert_array_equal(tokens.encode(IMAGES)[:, t], 1 + value)


def test_later_tokens_have_no_influence():
    """A value has influence on later predictions, the next included, and on no other."""
    model = made(TWO)
    tokens = ImageTokens.of(model)
    before = np.asarray(model({"token_ids": tokens.inputs(IMAGES)}))
    for row, column, channel in [(0, 3, 1), (1, 0, 0), (2, 1, 1)]:
        changed = IMAGES.copy()
        changed[:, row, column, channel] = (changed[:, row, column, channel] + 1) % V
        ids = tokens.encode(changed).numpy()
        rank = np.flatnonzero(np.any(ids != tokens.encode(IMAGES), axis=0))
        assert len(rank) == 1
        after = np.asarray(model({"token_ids": tokens.inputs(changed)}))
        differs = np.any(after != before, axis=(0, 2))
        assert not np.any(differs[: rank[0] + 1]) and differs[rank[0] + 1]


@pytest.mark.slow
def test_generation_equals_the_uncached_loop():
    model = made(TWO)
    tokens = ImageTokens.of(model)
    written, scores = generate(model, tokens.start(B), Sample(seed=5), tokens.length, eos_id=-1)
    noise = uniform((tokens.length, B), seed=5).numpy()
    # One pass: each token is what its own prefix and its own number give.
    ids = np.concatenate([tokens.start(B), written[:, :-1]], axis=1)
    logits = np.asarray(model({"token_ids": ids}), "float64")
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    below = np.sum(np.cumsum(p, axis=-1) <= noise.T[..., None], axis=-1)
    assert np.mean(below == written) > 0.95  # but where the number falls between two by rounding
    expected = np.log(np.take_along_axis(p, written.numpy()[..., None], axis=-1))[..., 0]
    np.testing.assert_allclose(scores, expected.sum(1), rtol=1e-4)
    assert len(np.unique(written)) > 2
    images = tokens.decode(written)
    assert images.shape == (B, *SHAPE) and 0 <= np.min(images) and np.max(images) < V


@pytest.mark.slow
def test_generation_of_whole_pixels_equals_the_uncached_loop():
    model = made(BlockLocal2D((HEIGHT, WIDTH), (2, 2), (1, 1)), num_mixtures=K)
    tokens, likelihood = ImageTokens.of(model), MixtureOfLogistics(K, CHANNELS, V)
    strategy = SamplePixels(K, CHANNELS, V, seed=3)
    written, scores = generate(model, tokens.start(B), strategy, tokens.length, eos_id=-1)
    noise = uniform((tokens.length, B, K + CHANNELS), seed=3)
    images = tokens.decode(written)
    parameters = model({"token_ids": tokens.inputs(images)})
    values = likelihood.sample_by(parameters, np.swapaxes(noise, 0, 1))
    np.testing.assert_array_equal(values, tokens.values(images))
    expected = likelihood.log_probability(values, parameters)
    np.testing.assert_allclose(scores, np.sum(expected, axis=1), rtol=1e-3)
    assert len(np.unique(written)) > 4


SMALL = (1, 2, CHANNELS)
SOURCES = np.random.default_rng(2).integers(0, V, (B, *SMALL))


@pytest.mark.slow
def test_super_resolution_attends_to_the_source_but_not_to_later_pixels():
    model = super_resolution_transformer(V + 2, SMALL, SHAPE, 1, **SIZES, pattern=TWO)
    oracles.scramble(model, scale=0.6)
    tokens, source = ImageTokens.of(model), ImageTokens(SMALL, V).encode(SOURCES).numpy()
    target = tokens.inputs(IMAGES).numpy()
    before = np.asarray(model({"source_ids": source, "target_ids": target}))
    for s in (0, source.shape[1] - 1):
        changed = source.copy()
        changed[:, s] = 1 + changed[:, s] % V
        after = np.asarray(model({"source_ids": changed, "target_ids": target}))
        assert np.all(np.any(after != before, axis=-1))
    swapped = np.asarray(model({"source_ids": source[:, ::-1], "target_ids": target}))
    assert np.abs(swapped - before).max() > 1e-3  # positions of the source count
    changed = target.copy()
    changed[:, 7] = 1 + changed[:, 7] % V
    after = np.asarray(model({"source_ids": source, "target_ids": changed}))
    differs = np.any(after != before, axis=(0, 2))
    assert not np.any(differs[:7]) and differs[7]


def test_invalid_arguments_raise():
    with pytest.raises(ValueError, match="`pattern` must be causal.*Local"):
        made(Local(3, causal=False))
    with pytest.raises(ValueError, match=r"`pattern` must be of images of \(3, 4\).*\(3, 8\)"):
        made(TWO, num_mixtures=K)
    with pytest.raises(ValueError, match="`y_pred` must have shape"):
        model = made(num_mixtures=K)
        generate(model, ImageTokens.of(model).start(1), SamplePixels(2), 3, eos_id=-1)
