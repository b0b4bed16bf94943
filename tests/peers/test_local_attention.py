"""`BlockLocal1D` and `Local` beside local-attention's two window conventions."""

import numpy as np
import oracles
import pytest

from keras_attn import patterns
from keras_attn.attention.inputs import AttentionInputs, default_positions
from keras_attn.scores import DotProduct

torch = pytest.importorskip("torch", reason="local-attention needs PyTorch")
local_attention = pytest.importorskip("local_attention", reason="local-attention is not installed")

B, N, T, H, W = 2, 3, 35, 5, 7


@pytest.mark.parametrize(
    "options, pattern",
    [
        # Its own block and the one before.
        ({"causal": True}, patterns.BlockLocal1D(W, W)),
        ({"causal": True, "look_backward": 2}, patterns.BlockLocal1D(W, 2 * W)),
        # W keys before itself, where we count W with itself.
        ({"causal": True, "exact_windowsize": True}, patterns.Local(W + 1)),
        (
            {"causal": False, "look_forward": 1, "exact_windowsize": True},
            patterns.Local(W + 1, causal=False),
        ),
    ],
)
@pytest.mark.parametrize("padded", [False, True])
def test_window_conventions(options, pattern, padded):
    query, key, value = (oracles.random(B, N, T, H, seed=seed) for seed in range(3))
    real = np.ones((B, T), bool)
    if padded:
        real[1, -W - 2 :] = False
    peer = local_attention.LocalAttention(W, autopad=True, use_rotary_pos_emb=False, **options)
    theirs = peer(*(torch.tensor(x) for x in (query, key, value)), mask=torch.tensor(real))
    inputs = AttentionInputs(
        query, key, value, *default_positions(T, T), DotProduct(), key_mask=real[:, None]
    )
    ours, _ = pattern.plan.attend(inputs)
    # A padded query is not computed by the peer as by us, and is nobody's business.
    theirs, ours = (np.moveaxis(np.asarray(x), 1, 2)[real] for x in (theirs, ours))
    np.testing.assert_allclose(ours, theirs, atol=2e-6)
