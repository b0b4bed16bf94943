"""Outputs of models of Hugging Face's transformers 5.23, with random weights:

    python transformers_models.py RESULTS.npz

needs torch and transformers, and nothing of this project. A file has the weights, inputs and
outputs of each model, as "model/name".
"""

import sys

import numpy as np
import torch
import transformers
from transformers_layers import EAGER, RESULTS, filled, random, record

V, D, N, K, F, T = 97, 12, 3, 1, 11, 13
IDS = torch.tensor(np.random.default_rng(0).integers(1, V, (2, T)))
SOURCE = torch.tensor(np.random.default_rng(1).integers(1, V, (2, 7)))
SIZES = {
    "vocab_size": V,
    "hidden_size": D,
    "intermediate_size": F,
    "num_hidden_layers": 2,
    "num_attention_heads": N,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def causal():
    shared = {"num_key_value_heads": K, **EAGER}
    for name, kind, more in (
        (
            "mixtral",
            "Mixtral",
            {
                "num_local_experts": 4,
                "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
            },
        ),
        (
            "gpt_oss",
            "GptOss",
            {"sliding_window": 4, "head_dim": 6, "num_local_experts": 4, "num_experts_per_tok": 2},
        ),
    ):
        config = getattr(transformers, f"{kind}Config")(**SIZES, **shared, **more)
        model = filled(getattr(transformers, f"{kind}ForCausalLM")(config), scale=0.3)
        record(name, model, ids=IDS, y=model(IDS).logits)


def text_to_text():
    sizes = {"vocab_size": V, "d_model": D, "d_kv": 5, "d_ff": F, "num_heads": N, "num_layers": 2}
    config = transformers.SwitchTransformersConfig(
        **sizes,
        num_experts=4,
        expert_capacity=64,
        num_decoder_layers=2,
        num_sparse_encoder_layers=1,
        num_sparse_decoder_layers=1,
        decoder_start_token_id=0,
    )
    model = filled(transformers.SwitchTransformersForConditionalGeneration(config), scale=0.3)
    y = model(input_ids=SOURCE, decoder_input_ids=IDS).logits
    record("switch_transformer", model, ids=IDS, source=SOURCE, y=y)


def masked():
    config = transformers.ModernBertConfig(
        **SIZES, local_attention=4, cls_token_id=1, sep_token_id=2, attn_implementation="eager"
    )
    model = filled(transformers.ModernBertForMaskedLM(config), scale=0.3)
    record("modern_bert", model, ids=IDS, y=model(IDS).logits)
    config = transformers.PerceiverConfig(
        vocab_size=V,
        d_model=16,
        d_latents=24,
        num_latents=5,
        num_blocks=1,
        num_self_attends_per_block=2,
        num_self_attention_heads=8,
        num_cross_attention_heads=8,
        qk_channels=256,
        v_channels=24,
        max_position_embeddings=T,
    )
    model = transformers.PerceiverForMaskedLM(config)
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 1e-12  # torch's default is another than the authors'
    model = filled(model, scale=0.3)
    with torch.no_grad():
        model.embedding_decoder.bias.zero_()
    record("perceiver", model, ids=IDS, y=model(IDS).logits)


def trajectories():
    config = transformers.DecisionTransformerConfig(
        state_dim=5, act_dim=4, hidden_size=D, n_layer=2, n_head=1, n_inner=F, max_ep_len=20
    )
    model = filled(transformers.DecisionTransformerModel(config), scale=0.3)
    inputs = {
        "states": random(2, 6, 5),
        "actions": random(2, 6, 4),
        "returns_to_go": random(2, 6, 1),
    }
    y = model(**inputs, rewards=None, timesteps=torch.arange(6)[None].expand(2, 6)).action_preds
    record("decision_transformer", model, **inputs, y=y)


if __name__ == "__main__":
    with torch.no_grad():
        for part in (causal, text_to_text, masked, trajectories):
            part()
    np.savez(sys.argv[1], **RESULTS)
