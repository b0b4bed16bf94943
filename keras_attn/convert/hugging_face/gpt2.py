"""GPT-2: its names on disk, and the model for them."""

import numpy as np

from keras_attn import models
from keras_attn.convert.hugging_face.overrides import build
from keras_attn.convert.hugging_face.weights import assign, copy, copy_blocks, copy_table

EMBEDDINGS = {"embedding": "wte", "position": "wpe", "depth.norm": "ln_f"}
BLOCK = {
    "attention_residual.norm": "ln_1",
    "feed_forward_residual.norm": "ln_2",
}


def convert(checkpoint, overrides):
    """Return a `CausalLanguageModel` with the weights of a checkpoint."""
    config = checkpoint.config
    checkpoint.strip("transformer.")
    checkpoint.ignore("h.*.attn.bias", "h.*.attn.masked_bias")
    checkpoint.drop_copy("lm_head.weight", "wte.weight")
    width = config.size("n_embd")
    arguments = {
        "vocabulary_size": config.size("vocab_size"),
        "num_layers": config.size("n_layer"),
        "num_heads": config.size("n_head"),
        "hidden_dim": width,
        "intermediate_dim": config.size("n_inner", 4 * width),
        "dropout": config.number("resid_pdrop", 0.1),
        "max_length": config.size("n_positions"),
        "activation": config.activation("activation_function", "gelu_new"),
        "epsilon": config.number("layer_norm_epsilon", 1e-5),
        "pad_id": None,  # id 0 is a token
    }
    model = build(models.gpt, arguments, overrides)
    copy_table(checkpoint, model, EMBEDDINGS)
    blocks = model.depth.blocks
    copy_blocks(checkpoint, blocks, BLOCK, "h.{}.")
    for index, block in enumerate(blocks):
        scale = 1.0 if config.flag("scale_attn_weights", True) else block.attention.key_dim**0.5
        if config.flag("scale_attn_by_inverse_layer_idx"):
            scale /= index + 1
        _copy_attention(checkpoint, block.attention, f"h.{index}.attn.", scale)
        for name, dense in (
            ("c_fc", block.feed_forward.intermediate),
            ("c_proj", block.feed_forward.output_dense),
        ):
            copy(checkpoint, dense.kernel, f"h.{index}.mlp.{name}.weight")  # stored (in, out)
            copy(checkpoint, dense.bias, f"h.{index}.mlp.{name}.bias")
    return model


def _copy_attention(checkpoint, attention, prefix, scale):
    """Copy the joined projections of queries, keys and values, and that of the output."""
    kernels = attention.query_kernel, attention.key_kernel, attention.value_kernel
    biases = attention.query_bias, attention.key_bias, attention.value_bias
    width = kernels[0].shape[0]
    for kind, variables, shape in (
        ("weight", kernels, (width, 3 * width)),
        ("bias", biases, (3 * width,)),
    ):
        parts = np.split(checkpoint.take(f"{prefix}c_attn.{kind}", shape), 3, axis=-1)
        for variable, part, factor in zip(variables, parts, (scale, 1.0, 1.0), strict=True):
            assign(variable, part, factor)
    assign(attention.output_kernel, checkpoint.take(f"{prefix}c_proj.weight", (width, width)))
    copy(checkpoint, attention.output_bias, f"{prefix}c_proj.bias")
