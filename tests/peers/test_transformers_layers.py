"""Layers beside those of Hugging Face's transformers 5.23, with copied weights."""

from pathlib import Path

import keras
import numpy as np
import peers
import pytest
from keras import ops

from keras_attn import norms, patterns, positions, scores
from keras_attn.layers import DifferentialAttention, MultiHeadAttention

SCRIPT = Path(__file__).with_name("transformers_layers.py")
N, K, H, D = 4, 2, 6, 12
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
pytestmark = pytest.mark.slow


def case(name):
    return peers.results_of(SCRIPT, name)


def built(layer, x):
    layer.build(x.shape)
    return layer


def attention(x, *, use_bias=False, **arguments):
    layer = MultiHeadAttention(N, H, use_bias=use_bias, **arguments)
    return built(layer, x)


@pytest.mark.parametrize("name, pattern", [("t5_encoder", "dense"), ("t5_decoder", "causal")])
@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
def test_attention_of_t5(name, pattern, implementation):
    arrays = case(name)
    bias = scores.T5Bias(bidirectional=pattern == "dense")
    options = {"pattern": pattern, "implementation": implementation}
    layer = attention(arrays["x"], score=scores.DotProduct(scaled=False) + bias, **options)
    peers.set_attention(layer, arrays, "q", "k", "v", "o")
    bias.table.assign(arrays["relative_attention_bias.weight"])
    np.testing.assert_array_equal(
        bias.buckets(arrays["distances"].astype("int32")), arrays["buckets"]
    )
    peers.check_close(layer(arrays["x"], arrays["x"]), arrays["y"])


@pytest.mark.parametrize("num_heads", [3, 4, 6, 8, 12])
def test_slopes_of_bloom_and_mpt(num_heads):
    bias, slopes = scores.ALiBi(), case("slopes")
    bias.build((None, num_heads, 2, H))
    np.testing.assert_allclose(bias.slopes, slopes[f"bloom_{num_heads}"], rtol=1e-6)
    np.testing.assert_allclose(bias.slopes, slopes[f"mpt_{num_heads}"], rtol=1e-6)


def test_attention_of_mpt():
    arrays = case("mpt")
    layer = attention(arrays["x"], score=scores.DotProduct() + scores.ALiBi(), pattern="causal")
    thirds = np.split(arrays["Wqkv.weight"], 3)
    arrays |= {f"{n}.weight": w for n, w in zip("qkv", thirds, strict=True)}
    peers.set_attention(layer, arrays, "q", "k", "v", "out_proj")
    peers.check_close(layer(arrays["x"], arrays["x"]), arrays["y"])


SCALINGS = {
    "none": None,
    "linear": positions.Interpolation(4),
    # The dynamic one at 32 positions of 16 trained: ours is for one length, chosen in advance.
    "dynamic": positions.NTK(4 * 32 / 16 - 3),
    "yarn": positions.YaRN(4, length=16),
    "llama3": positions.Llama3(8, length=16),
    "longrope": positions.LongRoPE(4, length=16, factors=[1.0, 1.5, 2.0, 3.0]),
}


@pytest.mark.parametrize("name", SCALINGS)
def test_rotary_scalings(name):
    arrays = case(f"rotary_{name}")
    position = positions.Rotary(10000, "half", scaling=SCALINGS[name])
    peers.check_close(position(arrays["x"]), arrays["y"])


def test_norms_of_queries_and_keys():
    arrays = case("olmo2")
    position = positions.Rotary(float(arrays["base"]), "half")
    options = {"qk_norm": norms.RMSNorm(1e-5), "qk_norm_axis": "heads", "position": position}
    options["num_key_value_heads"] = K
    layer = attention(arrays["x"], pattern="causal", **options)
    peers.set_attention(layer, arrays, *PROJECTIONS)
    layer.qk_norm.scale.assign(arrays["q_norm.weight"])
    layer.key_norm.scale.assign(arrays["k_norm.weight"])
    peers.check_close(layer(arrays["x"], arrays["x"]), arrays["y"])


def test_differential_attention():
    arrays = case("diffllama")
    position = positions.Rotary(float(arrays["base"]), "half")
    options = {"pattern": "causal", "position": position, "use_bias": False, "epsilon": 1e-5}
    layer = built(DifferentialAttention(N, H, 0, **options), arrays["x"])
    # A pair's values are those of two heads.
    heads = arrays["v_proj.weight"].reshape(2, N // 2, H, D).swapaxes(0, 1)
    arrays["v_proj.weight"] = heads.reshape(N * H, D)
    peers.set_attention(layer, arrays, *PROJECTIONS)
    names = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")
    for vector, name in zip(layer.scale_vectors, names, strict=True):
        vector.assign(arrays[name])
    peers.check_close(layer(arrays["x"], arrays["x"]), arrays["y"])


def with_plain_output(arrays):
    """The peer ends before the output projection: an identity takes its place."""
    width = arrays["x"].shape[-1]
    return {**arrays, "o.weight": np.eye(width, dtype="float32"), "o.bias": np.zeros(width)}


@pytest.mark.parametrize("implementation", ["dense", "blockwise"])
def test_disentangled_attention(implementation):
    arrays = with_plain_output(case("deberta"))
    score = scores.Disentangled(8, max_distance=40)
    layer = attention(arrays["x"], use_bias=True, score=score, implementation=implementation)
    peers.set_attention(layer, arrays, "query_proj", "key_proj", "value_proj", "o")
    for ours, theirs in (("key_table", "pos_key_proj"), ("query_table", "pos_query_proj")):
        table = arrays["table"] @ arrays[f"{theirs}.weight"].T + arrays[f"{theirs}.bias"]
        getattr(score, ours).assign(table.reshape(-1, N, H))
    peers.check_close(layer(arrays["x"], arrays["x"]), arrays["y"])


BLOCK, LAST, NUM_RANDOM = 2, 15, 3


@keras.saving.register_keras_serializable("test")
class Blocks(patterns.Pattern):
    """The blocks of a window of three, the first one and the last one."""

    def mask_mod(self, i, j):
        i, j = i // BLOCK, j // BLOCK
        near = ops.abs(i - j) <= 1
        for end in (0, LAST):
            near = ops.logical_or(near, ops.logical_or(i == end, j == end))
        return near


@keras.saving.register_keras_serializable("test")
class FirstBlockCounts(scores.Bias):
    """In inference the peer draws block 0 for each random block, which counts it again."""

    def of_pairs(self, i, j):
        i, j = i // BLOCK, j // BLOCK
        again = (j == 0) & (i > 0) & (i < LAST)
        return ops.where(again, np.log(1.0 + NUM_RANDOM), 0.0)


def test_big_bird_counts_the_first_block_again_in_inference():
    arrays = with_plain_output(case("big_bird"))
    outputs = {}
    for count in (True, False):
        score = scores.DotProduct() + FirstBlockCounts() if count else scores.DotProduct()
        layer = attention(arrays["x"], use_bias=True, pattern=Blocks(), score=score)
        peers.set_attention(layer, arrays, "query", "key", "value", "o")
        outputs[count] = np.asarray(layer(arrays["x"], arrays["x"]))
    peers.check_close(outputs[True], arrays["y"])
    assert np.abs(outputs[False] - arrays["y"]).max() > 0.01
