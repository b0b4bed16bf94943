import keras
import numpy as np
import oracles
import pytest
from decoding import check_greedy
from marks import slow

from keras_attn.depth import Recurrent, Stack
from keras_attn.layers import (
    MultiHeadAttention,
    SeparableConvTransition,
    TokenEmbedding,
    TransformerBlock,
)
from keras_attn.models.causal_language_model import CausalLanguageModel

B, T, D, F = 2, 7, 3, 5
X = oracles.random(B, T, D)
REAL = np.arange(T)[None] < np.array([[7], [4]])


def built(causal=False, **arguments):
    layer = SeparableConvTransition(F, causal=causal, **arguments)
    layer.build(X.shape)
    oracles.scramble(layer)
    return layer


def convolution(x, real, depthwise, pointwise, bias, causal):
    """Each channel with its own taps, then the channels of a position mixed; in loops."""
    size, width = depthwise.shape[:2]
    first = size - 1 if causal else (size - 1) // 2
    out = np.zeros((*x.shape[:2], pointwise.shape[2]))
    for b, t in np.ndindex(x.shape[:2]):
        seen = np.zeros(width)
        for tap in range(size):
            s = t + tap - first
            if 0 <= s < x.shape[1] and real[b, s]:
                seen += x[b, s] * depthwise[tap, :, 0]
        out[b, t] = seen @ pointwise[0] + bias
    return out


def oracle(layer, x, real):
    weights = [oracles.numpy_of(w) for w in layer.weights]
    hidden = np.maximum(convolution(x, real, *weights[:3], layer.causal), 0)
    return convolution(hidden, real, *weights[3:], layer.causal)


@pytest.mark.parametrize(
    "causal, sizes", [(False, (3, 5)), (True, (2, 4)), (False, (9, 8))], ids=str
)
def test_output_equals_the_formula(causal, sizes):
    layer = built(causal, kernel_sizes=sizes)
    shapes = [(sizes[0], D, 1), (1, D, F), (F,), (sizes[1], F, 1), (1, F, D), (D,)]
    assert [w.shape for w in layer.weights] == shapes
    expected = oracle(layer, X, REAL)
    np.testing.assert_allclose(layer(X, padding_mask=REAL), expected, atol=1e-5)
    whole = oracle(layer, X, np.ones((B, T), bool))
    np.testing.assert_allclose(layer(X), whole, atol=1e-5)


def test_padding_has_no_influence():
    layer = built(causal=False)
    before = np.asarray(layer(X, padding_mask=REAL))
    changed = np.where(REAL[..., None], X, np.nan).astype("float32")
    np.testing.assert_array_equal(layer(changed, padding_mask=REAL)[REAL], before[REAL])
    for b, length in enumerate(REAL.sum(axis=1)):
        alone = layer(X[b : b + 1, :length])
        np.testing.assert_allclose(before[b, :length], alone[0], atol=1e-6)


def test_block_passes_its_mask_to_the_transition():
    """Given by name or by Keras; padding is as if it were not there."""

    def block(index):
        return TransformerBlock(MultiHeadAttention(1, 3), SeparableConvTransition(F))

    stack = Stack(block, 1)
    stack.build(X.shape)
    oracles.scramble(stack)
    output = np.asarray(stack(X, padding_mask=REAL))
    masked = keras.layers.Masking()(X * REAL[..., None])
    np.testing.assert_allclose(np.asarray(stack(masked))[REAL], output[REAL], atol=1e-6)
    for b, length in enumerate(REAL.sum(axis=1)):
        alone = stack(X[b : b + 1, :length])
        np.testing.assert_allclose(output[b, :length], alone[0], atol=1e-5)


def test_dropout_applies_to_the_hidden_layer_in_training_only():
    layer = built(dropout=0.5)
    np.testing.assert_array_equal(layer(X), layer(X, training=False))
    dropped = [np.asarray(layer(X, training=True)) for _ in range(2)]
    assert np.abs(dropped[0] - dropped[1]).max() > 0.01
    layer.intermediate.set_weights([w * 0 for w in layer.intermediate.get_weights()])
    np.testing.assert_array_equal(layer(X, training=True), layer(X))


def causal_block(index):
    return TransformerBlock(
        MultiHeadAttention(2, 3, pattern="causal"), SeparableConvTransition(F, causal=True)
    )


@pytest.fixture(scope="module")
def model():
    """One that writes texts of several tokens: its small table keeps it from repeating the last."""
    model = CausalLanguageModel(TokenEmbedding(11, 6), Recurrent(causal_block(0), 2, "timestep"))
    oracles.scramble(model, seed=4, scale=0.7)
    model.embedding.table.assign(0.1 * model.embedding.table)
    return model


@pytest.mark.parametrize("ends, slots", [((3, 4, T), 11), slow((1, 2, T), None)], ids=str)
def test_cached_pieces_equal_one_pass(ends, slots):
    layer = built(causal=True)
    whole, cache, start = np.asarray(layer(X)), layer.initial_cache(B, slots), 0
    for end in ends:
        piece, cache = layer(X[:, start:end], cache=cache)
        np.testing.assert_allclose(piece, whole[:, start:end], atol=1e-5)
        start = end


def test_masked_slots_have_no_influence_for_any_mask_rank():
    """As if what stands in them were zero, of which a convolution reads nothing either."""
    layer, length = built(causal=True), 3
    slots = np.ones((B, T, T), bool)
    slots[1:, :, 1:length] = False
    _, cache = layer(X[:, :length], cache=layer.initial_cache(B, T))
    emptied = {
        name: np.where(slots[:, None, 0, :, None], part, 0.0) if name != "index" else part
        for name, part in cache.items()
    }
    expected, _ = layer(X[:, length:], cache=emptied)
    mask = slots[:, length:]
    masks = [{"attention_mask": mask}, {"attention_mask": mask[:, None]}]
    for masked in (*masks, {"padding_mask": slots[:, 0]}):
        output, _ = layer(X[:, length:], cache=cache, **masked)
        np.testing.assert_allclose(output, expected, atol=1e-6)
    with pytest.raises(ValueError, match="`attention_mask` must"):
        layer(X[:, length:], cache=cache, attention_mask=mask[:, :, 1:])


@pytest.mark.slow
def test_generation_equals_the_uncached_loop(model):
    """Prompts have different lengths: the convolutions must read each row's own last tokens."""
    check_greedy(model, np.array([[5, 3, 10, 0, 0], [7, 2, 9, 4, 6]]), max_length=6)


def test_invalid_uses_in_a_block_raise():
    with pytest.raises(ValueError, match="`memory` does not fit.*SeparableConvTransition"):
        causal_block(0)(X, memory=X)
    with pytest.raises(ValueError, match="`segment_ids` do not fit.*SeparableConvTransition"):
        causal_block(0)(X, segment_ids=np.ones((B, T), "int32"))
    stack = Stack(causal_block, 1)
    stack(X)
    cache = stack.initial_cache(B, T)
    del cache["layers"][0]["feed_forward"]
    with pytest.raises(ValueError, match="caches of attention and feed_forward"):
        stack(X, cache=cache)
    with pytest.raises(ValueError, match="`layer` must be built before a cache"):
        SeparableConvTransition(7, causal=True).initial_cache(B, T)
    layer = built()
    with pytest.raises(ValueError, match="`cache` needs `causal=True`"):
        layer(X, cache=layer.initial_cache(B, T))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"intermediate_dim": 0}, "intermediate_dim=0"),
        ({"intermediate_dim": 3, "kernel_sizes": 3}, "`kernel_sizes` must be two integers.*=3"),
        ({"intermediate_dim": 3, "kernel_sizes": (3, 0)}, r"`kernel_sizes`.*kernel_sizes=\(3, 0\)"),
        ({"intermediate_dim": 3, "dropout": 1}, "`dropout`.*dropout=1"),
        ({"intermediate_dim": 3, "activation": "step"}, "activation.*step"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        SeparableConvTransition(**arguments)


def test_masks_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"`padding_mask`.*\(2, 7\).*\(2, 6\)"):
        built()(X, padding_mask=REAL[:, :6])
    with pytest.raises(ValueError, match="`padding_mask` must be boolean"):
        built()(X, padding_mask=np.zeros((B, T), "float32"))
    with pytest.raises(ValueError, match=r"`x`.*\(2, 3\)"):
        built()(X[:, 0])
