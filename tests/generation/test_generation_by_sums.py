"""Generation with linear attention: a state of one size in place of the keys."""

import keras
import numpy as np
import oracles
import pytest
from decoding import check_greedy
from decoding_models import decode_eagerly
from marks import slow

from keras_attn import depth, layers
from keras_attn.generation import Beam, Sample, generate
from keras_attn.models import CausalLanguageModel, EncoderDecoder
from keras_attn.scores import FAVOR, DotProduct, Kernel

V, N, H, D, L = 13, 2, 4, 6, 2
PROMPTS = np.array([[5, 9, 3, 7, 2], [8, 4, 0, 0, 0]], "int32")


def block(score, pattern="causal", **more):
    attention = layers.MultiHeadAttention(N, H, score=score, pattern=pattern, position="rotary")
    return layers.TransformerBlock(attention, layers.FeedForward(7), **more)


def model_of(*scores):
    stack = depth.Stack([block(score) for score in scores])
    model = CausalLanguageModel(layers.TokenEmbedding(V, D), stack)
    oracles.scramble(model, scale=0.8)
    return model


@pytest.fixture
def caches(monkeypatch):
    """The caches that generation makes."""
    made, initial = [], depth.Stack.initial_cache

    def recorded(self, *args, **kwargs):
        made.append(initial(self, *args, **kwargs))
        return made[-1]

    monkeypatch.setattr(depth.Stack, "initial_cache", recorded)
    return made


def keys_of(cache):
    return [set(layer["attention"]) for layer in cache["layers"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "scores, parts",
    [((Kernel(), FAVOR(9)), {"sums"}), slow((Kernel(), DotProduct()), {"key", "value"})],
    ids=["sums", "keys"],
)
def test_greedy_texts_equal_whole_passes(scores, parts, caches):
    """One layer with other scores keeps all keys.

    The rotary positions of prompts of two lengths continue each at its own.
    """
    check_greedy(model_of(*scores), PROMPTS, max_length=4)
    assert [keys_of(cache) for cache in caches] == [[parts] * L]


def test_the_bytes_of_the_cache_do_not_depend_on_the_length():
    model = model_of(Kernel(), Kernel())

    def size(length, whole):
        _, cache = model.start(PROMPTS, length, whole=whole)
        return sum(x.numpy().nbytes for x in keras.tree.flatten(cache))

    sums = len(PROMPTS) * L * N * H * (H + 1) * 4 + 4  # and an index
    assert size(10, whole=False) == size(10_000, whole=False) == sums
    assert size(10_000, whole=True) == len(PROMPTS) * L * N * 10_000 * 2 * H * 4 + 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "make_depth",
    [
        lambda: depth.Reversible([block(Kernel(), residual="pre_norm")]),
        lambda: depth.ACT(block(Kernel()), 3),
    ],
    ids=["reversible", "act"],
)
def test_other_depths_generate_the_same(make_depth, monkeypatch):
    def written():
        model = CausalLanguageModel(layers.TokenEmbedding(V, D), make_depth())
        oracles.scramble(model, scale=0.8)
        return decode_eagerly(model, PROMPTS, "greedy", 4, ends=(-1,))

    ids, scores = written()
    monkeypatch.setattr(depth.Stack, "keeps_sums", False)
    others, other_scores = written()
    np.testing.assert_array_equal(ids, others)
    np.testing.assert_allclose(scores, other_scores, atol=1e-4)


@pytest.mark.slow
def test_beams_and_samples_of_one_choice_are_greedy():
    model = model_of(Kernel(), Kernel())
    ids, _ = decode_eagerly(model, PROMPTS, "greedy", 4, ends=(-1,))
    for strategy in (Beam(1), Sample(top_k=1)):
        np.testing.assert_array_equal(decode_eagerly(model, PROMPTS, strategy, 4, (-1,))[0], ids)


@pytest.mark.slow
def test_a_decoder_of_sums_translates_as_one_of_keys(monkeypatch):
    def make():
        cross = layers.MultiHeadAttention(N, H)
        model = EncoderDecoder(
            layers.TokenEmbedding(V, D),
            "sinusoidal",
            depth.Stack([block(DotProduct(), "dense")]),
            depth.Stack([block(Kernel(), cross_attention=cross)]),
        )
        oracles.scramble(model, scale=0.8)
        return model

    ids, _ = decode_eagerly(make(), PROMPTS, "greedy", 4, ends=(-1,))
    monkeypatch.setattr(depth.Stack, "keeps_sums", False)
    others, _ = decode_eagerly(make(), PROMPTS, "greedy", 4, ends=(-1,))
    np.testing.assert_array_equal(others, ids)


@pytest.mark.slow
def test_xla_generates_the_same():
    model = model_of(FAVOR(9))
    ids, _ = decode_eagerly(model, PROMPTS, "greedy", 4, ends=(-1,))
    compiled, _ = generate(model, PROMPTS, max_length=4, eos_id=-1, jit_compile=True)
    np.testing.assert_array_equal(compiled, ids)
