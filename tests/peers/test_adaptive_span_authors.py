"""`AdaptiveSpan` and `LearnedRelative` beside the authors' module, with its weights.

It is run, not copied: its licence is CC-BY-NC. KERAS_ATTN_ADAPTIVE_SPAN names the folder with
`adaptive_span.py` and `models.py` of github.com/facebookresearch/adaptive-span.
"""

import importlib
import os
import sys

import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn.layers import MultiHeadAttention
from keras_attn.patterns import AdaptiveSpan
from keras_attn.scores import LearnedRelative

torch = pytest.importorskip("torch", reason="the peer needs torch")
FOLDER = os.environ.get("KERAS_ATTN_ADAPTIVE_SPAN")
if not FOLDER:
    pytest.skip("KERAS_ATTN_ADAPTIVE_SPAN names no folder", allow_module_level=True)

B, T, N, H = 2, 6, 3, 5
D = N * H
LOSS = 1e-3


@pytest.fixture
def authors(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    names = ("models", "adaptive_span", "persistent_memory", "adaptive_io")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module("models")
    for name in names:
        sys.modules.pop(name, None)


def peer(authors, x, context, max_span, ramp, parts):
    options = {
        "adapt_span_enabled": True,
        "adapt_span_loss": LOSS,
        "adapt_span_ramp": ramp,
        "adapt_span_init": 0,
        "adapt_span_cache": False,
    }
    layer = authors.MultiHeadSeqAttention(
        hidden_size=D,
        nb_heads=N,
        attn_span=max_span,
        dropout=0.0,
        adapt_span_params=options,
        pers_mem_params={"pers_mem_size": 0},
    )
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
        layer.attn.adaptive_span._mask.current_val.copy_(torch.tensor(parts)[:, None, None])
    vectors = torch.randn(1, H, max_span, generator=generator, requires_grad=True)
    x, context = torch.tensor(x), torch.tensor(context)
    output = layer(x, context, context, vectors)
    (output * torch.cos(torch.arange(float(D)))).sum().backward()
    return output.detach().numpy(), layer, vectors


def copy_weights(ours, layer, vectors, parts):
    into_heads = [
        projection.weight.detach().numpy().T.reshape(D, N, H)
        for projection in (layer.proj_query, layer.proj_key, layer.proj_val)
    ]
    output = layer.proj_out.weight.detach().numpy().T.reshape(N, H, D)
    ours.set_weights([*into_heads, output, by_distance(vectors.detach().numpy()), np.array(parts)])


def by_distance(vectors):
    """Its last column is for distance 1, its first for `max_span`; ours has one for 0 too."""
    return np.pad(vectors[0].T[::-1], ((1, 0), (0, 0)))


@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
@pytest.mark.parametrize(
    "max_span, ramp, parts",
    # No span a whole number: there the soft mask bends, and slopes are a matter of taste. The last
    # one is trimmed on both sides: to 128 of 256 keys by theirs.
    [(9, 4, [0.03, 0.3, 0.9]), (16, 4, [0.26, 0.01, 0.1]), (256, 32, [0.05, 0.2, 0.3])],
)
def test_output_loss_and_gradients(authors, max_span, ramp, parts, implementation):
    x, past = oracles.random(B, T, D), oracles.random(B, max_span, D, seed=1)
    context = np.concatenate([past, x], axis=1)
    expected, layer, vectors = peer(authors, x, context, max_span, ramp, parts)
    ours = MultiHeadAttention(
        *(N, H),
        score=LearnedRelative(max_span + 1),
        pattern=AdaptiveSpan(max_span, ramp, span_loss=LOSS, include_self=False),
        use_bias=False,
        implementation=implementation,
    )
    ours.build((None, None, D))
    copy_weights(ours, layer, vectors, parts)
    with tf.GradientTape() as tape:
        output = ours(x, context)
        loss = tf.reduce_sum(output * tf.cos(tf.range(float(D))))
    np.testing.assert_allclose(output, expected, atol=1e-5)
    span = layer.attn.adaptive_span
    np.testing.assert_allclose(sum(ours.losses), span.get_loss().item(), rtol=1e-6)
    gradients = tape.gradient(loss, [ours.score.embeddings.value, ours.pattern.span.value])
    wanted = by_distance(vectors.grad.numpy()), span._mask.current_val.grad.numpy()[:, 0, 0]
    for a, b in zip(gradients, wanted, strict=True):
        scale = max(1.0, np.abs(b).max())
        np.testing.assert_allclose(a / scale, b / scale, atol=2e-5)
