"""Models without a converter beside those of transformers 5.23, with copied weights."""

from pathlib import Path

import numpy as np
import peers
import pytest
from peers import part, set_attention, set_dense, set_experts_of_gpt_oss, set_norm

from keras_attn import models, positions

SCRIPT = Path(__file__).with_name("transformers_models.py")
SIZES = {"num_layers": 2, "num_heads": 3, "hidden_dim": 12, "intermediate_dim": 11, "dropout": 0.0}
V = 97
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
GPT_OSS = {
    **{"window": 4, "key_dim": 6, "num_experts": 4, "top_k": 2},
    "scaling": positions.YaRN(32, 4096, truncate=False),
}
pytestmark = pytest.mark.slow


def case(name):
    return peers.results_of(SCRIPT, name)


def ids_of(arrays, name="ids"):
    return arrays[name].astype("int32")


@pytest.mark.parametrize("name, arguments", [("mixtral", {"num_experts": 4}), ("gpt_oss", GPT_OSS)])
def test_causal_language_models(name, arguments):
    arrays = case(name)
    model = getattr(models, name)(V, **SIZES, num_key_value_heads=1, **arguments)
    model.embedding.table.assign(arrays["model.embed_tokens.weight"])
    set_dense(model.head, arrays, "lm_head")
    set_norm(model.depth.norm, arrays, "model.norm")
    for index, block in enumerate(model.depth.blocks):
        weights = part(arrays, f"model.layers.{index}.")
        set_attention(block.attention, part(weights, "self_attn."), *PROJECTIONS)
        set_norm(block.attention_residual.norm, weights, "input_layernorm")
        set_norm(block.feed_forward_residual.norm, weights, "post_attention_layernorm")
        experts = part(weights, "mlp.")
        if name == "mixtral":
            gate, up = np.split(experts["experts.gate_up_proj"].swapaxes(1, 2), 2, axis=2)
            down = experts["experts.down_proj"].swapaxes(1, 2)
            block.feed_forward.set_weights([experts["gate.weight"].T, gate, up, down])
        else:
            block.attention.sink_logits.assign(weights["self_attn.sinks"])
            set_experts_of_gpt_oss(block.feed_forward, experts)
    peers.check_close(model(ids_of(arrays)), arrays["y"])


def test_switch_transformer():
    arrays = case("switch_transformer")
    model = models.switch_transformer(V, **SIZES, key_dim=5, num_experts=4, gated=False)
    model.embedding.table.assign(arrays["shared.weight"] / np.sqrt(SIZES["hidden_dim"]))
    for side in ("encoder", "decoder"):
        depth = getattr(model, side)
        set_norm(depth.norm, arrays, f"{side}.final_layer_norm")
        table = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        for index, block in enumerate(depth.blocks):
            weights = part(arrays, f"{side}.block.{index}.layer.")
            set_attention(block.attention, part(weights, "0.SelfAttention."), *"qkvo")
            block.attention.score.terms[1].table.assign(arrays[table])
            set_norm(block.attention_residual.norm, weights, "0.layer_norm")
            last = 1
            if side == "decoder":
                last = 2
                set_attention(block.cross_attention, part(weights, "1.EncDecAttention."), *"qkvo")
                set_norm(block.cross_attention_residual.norm, weights, "1.layer_norm")
            set_norm(block.feed_forward_residual.norm, weights, f"{last}.layer_norm")
            weights = part(weights, f"{last}.mlp.")
            if "router.classifier.weight" in weights:
                wi, wo = (
                    np.stack([weights[f"experts.expert_{e}.{w}.weight"].T for e in range(4)])
                    for w in ("wi", "wo")
                )
                block.feed_forward.set_weights([weights["router.classifier.weight"].T, wi, wo])
            else:
                set_dense(block.feed_forward, weights, "wi", "wo")
    if model.head is not None:
        # This version of transformers shares the table, but for the factor of the logits.
        set_dense(model.head, arrays, "lm_head" if "lm_head.weight" in arrays else "shared")
    outputs = model({"source_ids": ids_of(arrays, "source"), "target_ids": ids_of(arrays)})
    peers.check_close(outputs, arrays["y"])


def test_modern_bert():
    arrays = case("modern_bert")
    model = models.modern_bert(V, **SIZES, window=4)
    model.embedding.table.assign(arrays["model.embeddings.tok_embeddings.weight"])
    set_norm(model.norm, arrays, "model.embeddings.norm")
    set_norm(model.encoder.norm, arrays, "model.final_norm")
    for index, block in enumerate(model.encoder.blocks):
        weights = part(arrays, f"model.layers.{index}.")
        thirds = np.split(weights["attn.Wqkv.weight"], 3)
        weights |= {f"{n}.weight": w for n, w in zip("qkv", thirds, strict=True)}
        set_attention(block.attention, weights, *"qkv", "attn.Wo")
        if index:
            set_norm(block.attention_residual.norm, weights, "attn_norm")
        set_norm(block.feed_forward_residual.norm, weights, "mlp_norm")
        gate, up = np.split(weights["mlp.Wi.weight"], 2)
        weights |= {"gate.weight": gate, "up.weight": up}
        set_dense(block.feed_forward, weights, "gate", "up", "mlp.Wo")
    set_dense(model.head.dense, arrays, "head.dense")
    set_norm(model.head.norm, arrays, "head.norm")
    model.head.bias.assign(arrays["decoder.bias"])
    peers.check_close(model(ids_of(arrays)), arrays["y"])


def set_perceiver_layer(attention, norms, feed_forward, weights):
    names = ("self.query", "self.key", "self.value", "output.dense")
    set_attention(attention, part(weights, "attention."), *names)
    for norm, name in zip(norms, ("attention.self.layernorm1", "layernorm"), strict=True):
        set_norm(norm, weights, name)
    set_dense(feed_forward, weights, "mlp.dense1", "mlp.dense2")


def test_perceiver():
    arrays = part(case("perceiver"), "perceiver.")
    sizes = {**SIZES, "num_heads": 8, "hidden_dim": 16, "intermediate_dim": 24}
    sizes |= {"num_latents": 5, "latent_dim": 24, "key_dim": 32, "max_length": 13}
    model = models.perceiver(V, **sizes)
    latents, last = model.encoder, "decoder.decoding_cross_attention."
    model.embedding.table.assign(arrays["input_preprocessor.embeddings.weight"])
    model.position.set_weights([arrays["input_preprocessor.position_embeddings.weight"]])
    latents.latents.assign(arrays["embeddings.latents"])
    table = arrays["decoder.output_position_encodings.position_embeddings"]
    latents.position.set_weights([table])
    set_norm(latents.depth.norm, arrays, f"{last}attention.self.layernorm2")
    read = "encoder.cross_attention."
    set_norm(latents.read.context_norm, arrays, f"{read}attention.self.layernorm2")
    parts = [(latents.read, read), (latents.write, last)]
    parts += [(b, f"encoder.self_attends.{n}.") for n, b in enumerate(latents.depth.blocks)]
    for block, prefix in parts:
        norms = block.attention_residual.norm, block.feed_forward_residual.norm
        set_perceiver_layer(block.attention, norms, block.feed_forward, part(arrays, prefix))
    whole = case("perceiver")
    peers.check_close(model(ids_of(whole)), whole["y"])


def test_decision_transformer():
    arrays = case("decision_transformer")
    sizes = {**SIZES, "num_heads": 1, "max_steps": 20}
    model = models.decision_transformer(5, 4, **sizes)
    embedding = model.embedding
    for name, kernel, bias in zip(
        ("return", "state", "action"), embedding.kernels, embedding.biases, strict=True
    ):
        kernel.assign(arrays[f"embed_{name}.weight"].T)
        bias.assign(arrays[f"embed_{name}.bias"])
    embedding.table.assign(arrays["embed_timestep.weight"])
    set_norm(embedding.norm, arrays, "embed_ln")
    # The peer adds the embedding of position 0 to all vectors, after that norm.
    beta = arrays["embed_ln.bias"] + arrays["encoder.wpe.weight"][0]
    embedding.norm.set_weights([arrays["embed_ln.weight"], beta])
    for index, block in enumerate(model.depth.blocks):
        weights = part(arrays, f"encoder.h.{index}.")
        # Its kernels are (in, out), with queries, keys and values in one.
        for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"):
            weights[f"{name}.weight"] = weights[f"{name}.weight"].T
        for kind in ("weight", "bias"):
            thirds = np.split(weights[f"attn.c_attn.{kind}"], 3)
            weights |= {f"{n}.{kind}": w for n, w in zip("qkv", thirds, strict=True)}
        set_attention(block.attention, weights, *"qkv", "attn.c_proj")
        set_norm(block.attention_residual.norm, weights, "ln_1")
        set_norm(block.feed_forward_residual.norm, weights, "ln_2")
        set_dense(block.feed_forward, weights, "mlp.c_fc", "mlp.c_proj")
    set_norm(model.depth.norm, arrays, "encoder.ln_f")
    set_dense(model.head, arrays, "predict_action.0")
    output = model(
        {
            "returns": arrays["returns_to_go"][..., 0],
            "states": arrays["states"],
            "actions": arrays["actions"],
        }
    )
    peers.check_close(output, arrays["y"])
