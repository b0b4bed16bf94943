"""`Relative` beside Hugging Face's Transformer-XL attention, with its weights."""

import numpy as np
import oracles
import pytest
import tensorflow as tf

from keras_attn.layers import MultiHeadAttention
from keras_attn.scores import Relative

torch = pytest.importorskip("torch", reason="the peer needs torch")
transfo_xl = pytest.importorskip(
    "transformers.models.deprecated.transfo_xl.modeling_transfo_xl",
    reason="the peer is in transformers 4.57, not in 5",
)

B, T, D, N, H = 2, 7, 12, 3, 5


def peer(memory, x, clamp_length):
    """Its output before residual and normalisation, its layer, and gradients of u, v and W_r."""
    layer = transfo_xl.RelPartialLearnableMultiHeadAttn(N, D, H, dropout=0.0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator))
    layer.layer_norm = torch.nn.Identity()
    length, num_keys = x.shape[1], memory.shape[1] + x.shape[1]
    distances = torch.arange(num_keys - 1, -1, -1.0)
    if clamp_length is not None:
        distances = distances.clamp(max=clamp_length)
    sinusoids = transfo_xl.PositionalEmbedding(D)(distances)
    future = torch.triu(torch.ones(length, num_keys), diagonal=1 + num_keys - length)
    w, mems = (torch.tensor(a.swapaxes(0, 1).copy()) for a in (x, memory))
    output = layer(w, sinusoids, attn_mask=future[:, :, None], mems=mems)[0] - w
    (output * torch.cos(torch.arange(float(D)))).sum().backward()
    return output.detach().numpy().swapaxes(0, 1), layer


def copy_weights(ours, layer):
    """Its kernels are (out, in), with queries, keys and values in one."""
    query, key, value = np.split(layer.qkv_net.weight.detach().numpy(), 3)
    into_heads = [a.T.reshape(D, N, H) for a in (query, key, value)]
    output = layer.o_net.weight.detach().numpy().T.reshape(N, H, D)
    u, v = (b.detach().numpy() for b in (layer.r_w_bias, layer.r_r_bias))
    ours.set_weights(
        [*into_heads, output, u, v, layer.r_net.weight.detach().numpy().T.reshape(D, N, H)]
    )


@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
@pytest.mark.parametrize("memory_length, clamp_length", [(0, None), (4, None), (9, 5)])
def test_output_and_gradients(memory_length, clamp_length, implementation):
    x, memory = oracles.random(B, T, D), oracles.random(B, memory_length, D, seed=1)
    expected, layer = peer(memory, x, clamp_length)
    ours = MultiHeadAttention(
        *(N, H),
        score=Relative(D, clamp_length),
        pattern="causal",
        use_bias=False,
        implementation=implementation,
    )
    ours.build((None, None, D))
    copy_weights(ours, layer)
    with tf.GradientTape() as tape:
        output = ours(x, np.concatenate([memory, x], axis=1))
        loss = tf.reduce_sum(output * tf.cos(tf.range(float(D))))
    np.testing.assert_allclose(output, expected, atol=1e-5)
    gradients = tape.gradient(loss, [w.value for w in ours.score.weights])
    into_r = layer.r_net.weight.grad.numpy().T.reshape(D, N, H)
    wanted = layer.r_w_bias.grad.numpy(), layer.r_r_bias.grad.numpy(), into_r
    for a, b in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-4)
