"""Signatures of image models: seeds to images, and images to bits."""

import math

import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn import export, text
from keras_attn.generation import (
    Forbidden,
    Greedy,
    Sample,
    SamplePixels,
    Speculative,
    generate,
)
from keras_attn.losses import MixtureOfLogistics
from keras_attn.metrics import BitsPerDim
from keras_attn.models import ImageTokens, image_transformer, super_resolution_transformer
from keras_attn.patterns import BlockLocal2D

B, HEIGHT, WIDTH, CHANNELS, V, K = 3, 2, 4, 2, 5, 3
SHAPE = (HEIGHT, WIDTH, CHANNELS)
SIZES = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 11}
IMAGES = np.random.default_rng(1).integers(0, V, (B, *SHAPE)).astype("int32")


def random_model(mixtures):
    columns = WIDTH * (CHANNELS if mixtures is None else 1)
    pattern = BlockLocal2D((HEIGHT, columns), (1, 3), (1, 1))
    model = image_transformer(V + 2, SHAPE, **SIZES, pattern=pattern, num_mixtures=mixtures)
    oracles.scramble(model, scale=0.5)
    if mixtures is None:
        # Make the two special tokens improbable, as in a trained model: axis 0 of the features is
        # constant, and the table weights it by token.
        table = model.embedding.table.numpy()
        table[:, 0] = [-9.0, *[3.0] * V, -9.0]
        model.embedding.table.assign(table)
        norm = model.depth.blocks[-1].feed_forward_residual.norm
        norm.set_weights(
            [
                w * (np.arange(8) > 0) + i * (np.arange(8) == 0)
                for i, w in enumerate(norm.get_weights())
            ]
        )
    return model


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(None, id="categorical"),
        pytest.param(K, id="mixture", marks=pytest.mark.slow),
    ],
)
def subject(request):
    """A model, its functions, and its likelihood."""
    model = random_model(request.param)
    likelihood = None if request.param is None else MixtureOfLogistics(K, CHANNELS, V)
    return model, export.ImageGenerator(model), likelihood


def test_bits_are_those_of_the_metric(subject):
    model, generator, likelihood = subject
    tokens = ImageTokens.of(model)
    outputs = model({"token_ids": tokens.inputs(IMAGES)})
    bits = generator.score(IMAGES)["bits_per_dim"]
    metric = BitsPerDim(likelihood)
    for row in range(B):
        metric.reset_state()
        labels = tokens.encode(IMAGES) if likelihood is None else tokens.values(IMAGES)
        metric.update_state(labels[row : row + 1], outputs[row : row + 1])
        assert float(bits[row]) == pytest.approx(float(metric.result()), rel=1e-4)


def test_values_that_no_image_has_are_refused(subject):
    _, generator, _ = subject
    for value in (-1, V):
        images = IMAGES.copy()
        images[1, 0, 2, 1] = value
        with pytest.raises(tf.errors.InvalidArgumentError, match=rf"must be in \[0, {V}\)"):
            generator.score(images)


@pytest.mark.slow
@pytest.mark.parametrize("subject", [K], ids=["mixture"], indirect=True)
def test_an_export_gives_images_of_a_seed_and_their_score(
    subject, tmp_path, assert_warmup_records_match
):
    path = export.saved_model(subject[0], tmp_path)
    signatures = tf.saved_model.load(path).signatures
    assert set(signatures) == {"generate", "score", "serving_default"}
    assert_warmup_records_match(path, signatures)
    inputs = {
        name: {key: (x.dtype, x.shape.as_list()) for key, x in specs.items()}
        for name, specs in ((n, s.structured_input_signature[1]) for n, s in signatures.items())
    }
    numbers = {"batch_size": (tf.int32, []), "seed": (tf.int32, [])}
    assert inputs["generate"] == inputs["serving_default"] == numbers
    assert inputs["score"] == {"images": (tf.int32, [None, *SHAPE])}

    def sampled(seed):
        outputs = signatures["generate"](batch_size=tf.constant(7), seed=tf.constant(seed))
        return outputs["images"].numpy(), outputs["score"].numpy()

    images, score = sampled(1)
    assert images.shape == (7, *SHAPE) and images.min() == 0 and images.max() == V - 1
    np.testing.assert_array_equal(sampled(1)[0], images)
    assert np.any(sampled(2)[0] != images)
    assert len({image.tobytes() for image in images}) > 1
    bits = signatures["score"](images=tf.constant(images))["bits_per_dim"]
    np.testing.assert_allclose(bits, -score / math.log(2) / math.prod(SHAPE), rtol=1e-3)


@pytest.mark.slow
def test_images_are_those_of_generate():
    model = random_model(None)
    tokens = ImageTokens.of(model)
    images = export.ImageGenerator(model, Sample(temperature=0.5, seed=9)).generate(B, 4)
    strategy = Sample(temperature=0.5, seed=4)
    ids, score = generate(model, tokens.start(B), strategy, tokens.length, eos_id=-1)
    np.testing.assert_array_equal(images["images"], tokens.decode(ids))
    np.testing.assert_allclose(images["score"], score, rtol=1e-4)


@pytest.mark.slow
def test_an_export_holds_the_weights_of_a_draft_and_passes_it_the_seed(tmp_path):
    wrapped = Forbidden(Speculative(random_model(None), 2, Sample(seed=9)), [0])
    path = export.saved_model(random_model(None), tmp_path, strategy=wrapped)
    run = tf.saved_model.load(path).signatures["generate"]
    first, again, other = (
        run(batch_size=tf.constant(B), seed=tf.constant(seed))["images"] for seed in (1, 1, 2)
    )
    assert first.shape == (B, *SHAPE)
    np.testing.assert_array_equal(first, again)
    assert np.any(first != other)


def test_pixels_of_a_mixture_are_no_tokens():
    model = random_model(K)
    with pytest.raises(ValueError, match="`strategy` must be a `SamplePixels`"):
        export.ImageGenerator(model, Greedy())
    start = ImageTokens.of(model).start(1)
    with pytest.raises(ValueError, match="so no other strategy can wrap it"):
        generate(model, start, Forbidden(SamplePixels(K, CHANNELS, V), [0]), 2, eos_id=-1)


@pytest.mark.slow
def test_super_resolution_gives_the_images_of_generate(tmp_path, assert_warmup_records_match):
    model = super_resolution_transformer(V + 2, (1, 2, CHANNELS), SHAPE, 1, **SIZES)
    oracles.scramble(model, scale=0.5)
    directory = export.saved_model(model, tmp_path, strategy="greedy")
    signatures = tf.saved_model.load(directory).signatures
    assert set(signatures) == {"generate", "serving_default"}
    assert_warmup_records_match(directory, signatures)
    small = IMAGES[:, :1, :2]
    outputs = signatures["generate"](images=tf.constant(small), seed=tf.constant(0))
    source, tokens = ImageTokens(small.shape[1:], V), ImageTokens.of(model)
    ids, score = generate(
        model, source.encode(small), "greedy", tokens.length, bos_id=tokens.start_id, eos_id=-1
    )
    np.testing.assert_array_equal(outputs["images"], tokens.decode(ids))
    np.testing.assert_allclose(outputs["score"], score, rtol=1e-4)


def test_a_tokenizer_of_another_size_is_refused(tmp_path):
    with pytest.raises(ValueError, match="vocabularies of the same size"):
        export.saved_model(
            random_model(None), tmp_path, tokenizer=text.Characters("ab"), max_length=5
        )
