"""GPT-2: its names on disk, and the model for them."""

from keras_attn import models
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.family import Family, read_options, read_part
from keras_attn.convert.hugging_face.last_token_classifier import with_classifier
from keras_attn.convert.hugging_face.overrides import build
from keras_attn.convert.hugging_face.weights import Fold, copy, copy_blocks, copy_table

EMBEDDINGS = {"embedding": "wte", "position": "wpe", "depth.norm": "ln_f"}
BLOCK = {
    "attention_residual.norm": "ln_1",
    "feed_forward_residual.norm": "ln_2",
}


FIRST = "depth.blocks.0"
# Of each option of `config.json`, where the model has it.
OPTIONS = {
    "vocab_size": "embedding.vocabulary_size",
    "n_layer": "depth.num_layers",
    "n_head": f"{FIRST}.attention.num_heads",
    "n_embd": "embedding.hidden_dim",
    "n_inner": f"{FIRST}.feed_forward.intermediate_dim",
    "n_positions": "position.max_length",
    "embd_pdrop": "dropout",
    "attn_pdrop": f"{FIRST}.attention.dropout",
    "resid_pdrop": f"{FIRST}.dropout",
    "layer_norm_epsilon": f"{FIRST}.attention_residual.norm.epsilon",
}


def convert(checkpoint, overrides):
    """Return a `CausalLanguageModel` with the weights of a checkpoint."""
    checkpoint.strip("transformer.")
    checkpoint.ignore("h.*.attn.bias", "h.*.attn.masked_bias")
    checkpoint.drop_copy("lm_head.weight", "wte.weight")
    model = _build(checkpoint.config, overrides)
    checkpoint.repeat_positions("wpe.weight", checkpoint.config.size("n_positions"), overrides)
    copy_weights(checkpoint, model)
    return model


def _build(config, overrides):
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
    return build(models.gpt, arguments, overrides)


def copy_weights(checkpoint, model):
    """Copy the tensors of a model, in either direction."""
    config, blocks = checkpoint.config, model.depth.blocks
    copy_table(checkpoint, model, EMBEDDINGS)
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


def _copy_attention(checkpoint, attention, prefix, scale):
    """Copy the joined projections of queries, keys and values, and that of the output."""
    kernels = [attention.query_kernel, attention.key_kernel, attention.value_kernel]
    biases = [attention.query_bias, attention.key_bias, attention.value_bias]
    width, scales = kernels[0].shape[0], (scale, 1.0, 1.0)
    joined = Fold(kernels, (width, 3 * width), scales=scales)
    checkpoint.transfer(f"{prefix}c_attn.weight", joined)
    checkpoint.transfer(f"{prefix}c_attn.bias", Fold(biases, (3 * width,), scales=scales))
    output = Fold([attention.output_kernel], (width, width))
    checkpoint.transfer(f"{prefix}c_proj.weight", output)
    copy(checkpoint, attention.output_bias, f"{prefix}c_proj.bias")


def options(model):
    """Return the options of `config.json` for a model."""
    activation = read_part(model, f"{FIRST}.feed_forward.activation")
    return {
        **read_options(model, OPTIONS),
        "activation_function": activation_name(activation, tanh="gelu_new"),
        "architectures": ["GPT2LMHeadModel"],
    }


FAMILY = with_classifier(
    Family(
        convert=convert,
        options=options,
        build=lambda config, model: _build(config, {}),
        copy_weights=copy_weights,
        prefix="transformer.",
        free=("pad_id",),  # padding is at the end, where no token sees it
    ),
    "GPT2",
)
