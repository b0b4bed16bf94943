"""Outputs of layers of Hugging Face's transformers 5.23, with random weights:

    python transformers_layers.py RESULTS.npz

needs torch and transformers, and nothing of this project. A file has the weights, inputs and
outputs of each case, as "case/name".
"""

import sys

import numpy as np
import torch
from transformers import (
    BigBirdConfig,
    DebertaV2Config,
    DiffLlamaConfig,
    LlamaConfig,
    MptConfig,
    Olmo2Config,
    T5Config,
)
from transformers.models.big_bird import modeling_big_bird as big_bird
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.deberta_v2 import modeling_deberta_v2 as deberta
from transformers.models.diffllama import modeling_diffllama as diffllama
from transformers.models.llama import modeling_llama as llama
from transformers.models.mpt import modeling_mpt as mpt
from transformers.models.olmo2 import modeling_olmo2 as olmo2
from transformers.models.t5.modeling_t5 import T5Attention

B, T, N, K, H, D, F = 2, 11, 4, 2, 6, 12, 7
HEADS = {"num_attention_heads": N, "num_key_value_heads": K, "head_dim": H}
EAGER = {"attn_implementation": "eager", "experts_implementation": "eager"}
RESULTS = {}


def random(*shape, seed=0, scale=1.0):
    return torch.tensor(
        np.random.default_rng([seed, *shape]).normal(0, scale, shape).astype("float32")
    )


def filled(module, scale=0.4):
    """The module in inference, with random weights, none of them zero or one."""
    with torch.no_grad():
        for seed, parameter in enumerate(module.parameters()):
            parameter.copy_(random(*parameter.shape, seed=seed + 1, scale=scale))
    return module.eval()


def record(case, module, **arrays):
    """Keep the module's weights and the arrays."""
    weights = module.state_dict() if module is not None else {}
    for name, value in {**weights, **arrays}.items():
        RESULTS[f"{case}/{name}"] = np.asarray(
            value.detach() if hasattr(value, "detach") else value
        )


def causal(length):
    """An additive mask (1, 1, T, T)."""
    i, j = torch.arange(length)[:, None], torch.arange(length)
    return torch.where(j <= i, 0.0, torch.finfo(torch.float32).min)[None, None]


def biases():
    x = random(B, 3 * T, D)
    for name, is_decoder in (("t5_encoder", False), ("t5_decoder", True)):
        config = T5Config(d_model=D, d_kv=H, num_heads=N, is_decoder=is_decoder, **EAGER)
        layer = filled(T5Attention(config, has_relative_attention_bias=True, layer_idx=0))
        y = layer(x, mask=causal(3 * T) if is_decoder else None)[0]
        far = torch.arange(0, 700)
        pairs = torch.cat([far, -far])
        buckets = T5Attention._relative_position_bucket(pairs, not is_decoder, 32, 128)
        record(name, layer, x=x, y=y, distances=-pairs, buckets=buckets)
    for heads in (3, 4, 6, 8, 12):
        ones = torch.ones(1, 2)
        bloom = build_alibi_tensor(ones, heads, torch.float32)[:, 0, 1]
        slopes = (
            mpt.build_mpt_alibi_tensor(heads, 2)[:, 0, 1]
            - mpt.build_mpt_alibi_tensor(heads, 2)[:, 0, 0]
        )
        record("slopes", None, **{f"bloom_{heads}": bloom, f"mpt_{heads}": slopes})
    layer = filled(mpt.MptAttention(MptConfig(d_model=N * H, n_heads=N)))
    x = random(B, T, N * H)
    y = layer(x, mpt.build_mpt_alibi_tensor(N, T), attention_mask=causal(T) < 0)[0]
    record("mpt", layer, x=x, y=y)


SCALINGS = {
    "none": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    "llama3": {
        **{"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 16},
        **{"low_freq_factor": 1.0, "high_freq_factor": 4.0},
    },
    "longrope": {
        **{"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 16},
        **{"short_factor": [1.0] * 4, "long_factor": [1.0, 1.5, 2.0, 3.0]},
    },
}


def rotary():
    """Turned queries at positions 0 .. 31, for a trained length of 16."""
    length, size = 32, 8
    for name, scaling in SCALINGS.items():
        config = LlamaConfig(
            hidden_size=2 * size,
            num_attention_heads=2,
            max_position_embeddings=16 if name == "dynamic" else length,
            rope_parameters={"rope_theta": 10000.0, **scaling},
        )
        x = random(B, 2, length, size)
        cos, sin = llama.LlamaRotaryEmbedding(config)(x, torch.arange(length)[None])
        turned, _ = llama.apply_rotary_pos_emb(x, x, cos, sin)
        record(f"rotary_{name}", None, x=x, y=turned)


def attention():
    sizes = {"hidden_size": D, "intermediate_size": F, "num_hidden_layers": 2, **HEADS, **EAGER}
    cases = {
        "olmo2": (olmo2, "Olmo2", Olmo2Config(**sizes)),
        "diffllama": (
            *(diffllama, "DiffLlama"),
            DiffLlamaConfig(**{**sizes, "num_key_value_heads": N}),
        ),
    }
    x, places = random(B, T, D), torch.arange(T)[None]
    for name, (module, prefix, config) in cases.items():
        layer = filled(getattr(module, f"{prefix}Attention")(config, 0))
        turns = getattr(module, f"{prefix}RotaryEmbedding")(config)(x, places)
        y = layer(x, turns, causal(T))[0]
        record(name, layer, x=x, y=y, base=config.rope_parameters["rope_theta"])


def disentangled():
    config = DebertaV2Config(
        hidden_size=N * H,
        num_attention_heads=N,
        relative_attention=True,
        position_buckets=8,
        max_position_embeddings=40,
        pos_att_type=["p2c", "c2p"],
        share_att_key=False,
    )
    layer, length = filled(deberta.DisentangledSelfAttention(config)), 40
    x, table = random(B, length, N * H), random(16, N * H, seed=5)
    y = layer(x, torch.ones(B, 1, length, length), rel_embeddings=table)[0]
    record("deberta", layer, x=x, y=y, table=table)


def bigbird():
    config = BigBirdConfig(
        hidden_size=N * H,
        num_attention_heads=N,
        block_size=2,
        num_random_blocks=3,
        max_position_embeddings=64,
    )
    layer, length = filled(big_bird.BigBirdBlockSparseAttention(config, seed=0)), 32
    x, ones = random(B, length, N * H), torch.ones(B, length)
    blocks, band, rows, columns = big_bird.BigBirdModel.create_masks_for_block_sparse_attn(ones, 2)
    y = layer(x, band, rows, columns, blocks, blocks)[0]
    record("big_bird", layer, x=x, y=y)


if __name__ == "__main__":
    with torch.no_grad():
        for part in (biases, rotary, attention, disentangled, bigbird):
            part()
    np.savez(sys.argv[1], **RESULTS)
