"""Decoders without gates, whose norms have biases: StarCoder 2, Phi, GPT-NeoX, GPT-J, Falcon."""

import functools

from keras_attn import layers, norms, positions
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.families.causal_family import CLASSIFIER, FIRST
from keras_attn.convert.hugging_face.families.family import read_part
from keras_attn.convert.hugging_face.families.rotary_decoders import (
    PROJECTIONS,
    RotaryDecoder,
    first_turning,
    model_windows,
    window_pattern,
)
from keras_attn.convert.hugging_face.families.rotary_positions import read_rotary
from keras_attn.convert.hugging_face.heads import ANSWERS, CLASSES, TAGS

# Options of `config.json` by their paths in the model.
EPSILON = f"{FIRST}.attention_residual.norm.epsilon"
WIDTH = f"{FIRST}.feed_forward.intermediate_dim"

# A block whose sublayers read the same input, each by a norm of its own.
TWO_NORMS = functools.partial(layers.ParallelBlock, shared_norm=False)


def paths_with(epsilon, without=()):
    """Return the paths of Llama with the name of the option for the epsilon of a `LayerNorm`."""
    paths = {name: path for name, path in RotaryDecoder.paths.items() if path != EPSILON}
    return {name: path for name, path in paths.items() if name not in without} | {epsilon: EPSILON}


class PlainDecoder(RotaryDecoder):
    """Decoders of a `LayerNorm` and a feed-forward network without gates.

    Attributes:
        default_activation: str. That of the feed-forward layers where the file has none.
    """

    epsilon = 1e-5
    default_activation = "gelu"
    paths = paths_with("layer_norm_eps")
    feed_forward = {"intermediate": "mlp.fc1", "output_dense": "mlp.fc2"}

    def fits(self, model):
        return type(read_part(model, f"{FIRST}.feed_forward")) is layers.FeedForward

    def biases(self, config):
        return tuple(PROJECTIONS)

    def has_biases(self, config):
        """Return True if the feed-forward layers have biases."""
        return bool(self.biases(config))

    def norm(self, config):
        return norms.LayerNorm(config.number(self.option(EPSILON), self.epsilon))

    def activation(self, config):
        return config.activation(self.activation_option, self.default_activation)

    def width(self, config):
        """Return the inner width of the feed-forward layers."""
        return config.size(self.option(WIDTH))

    def feed_forward_of(self, config):
        arguments = self.width(config), self.activation(config), self.has_biases(config)

        def feed_forward(initializer, index):
            return layers.FeedForward(*arguments, kernel_initializer=initializer)

        return feed_forward


class Starcoder2(PlainDecoder):
    """StarCoder 2."""

    name = "Starcoder2"
    head_names = {head: RotaryDecoder.head_names[head] for head in (CLASSES, TAGS)}
    tied = True
    default_activation = "gelu_pytorch_tanh"
    paths = paths_with("norm_epsilon")
    feed_forward = {"intermediate": "mlp.c_fc", "output_dense": "mlp.c_proj"}

    def choices(self, config):
        window = config.optional(config.size, "sliding_window", None)
        pattern = window_pattern(lambda index: window)
        groups = config.size("num_key_value_heads", 2)
        return {**super().choices(config), "pattern": pattern, "num_key_value_heads": groups}

    def biases(self, config):
        return super().biases(config) if config.flag("use_bias", True) else ()

    def more_options(self, model):
        return {
            "use_bias": read_part(model, f"{FIRST}.attention.use_bias"),
            "sliding_window": model_windows(model)[0],
        }


def is_parallel(model):
    """Return True if both sublayers of a model's blocks read the same input."""
    return isinstance(read_part(model, FIRST), layers.ParallelBlock)


def divides_width(model):
    """Return True if the heads have the width together, as in families without a `head_dim`."""
    attention = read_part(model, f"{FIRST}.attention")
    return attention.num_heads * attention.key_dim == model.embedding.hidden_dim


def has_two_norms(block):
    """Return True if each sublayer of a block has a norm of its own."""
    return block.attention_residual is not block.feed_forward_residual


class Phi(PlainDecoder):
    """Phi 1, 1.5 and 2: both sublayers read the same input, by one norm."""

    name = "Phi"
    head_names = {head: RotaryDecoder.head_names[head] for head in (CLASSES, TAGS)}
    projections = {**PROJECTIONS, "output": "dense"}
    qk_norms = {"qk_norm": "q_layernorm", "key_norm": "k_layernorm"}
    norms = {"attention_residual.norm": "input_layernorm"}  # of both sublayers
    closing_norm = "final_layernorm"
    default_activation = "gelu_new"

    def fits(self, model):
        turning = first_turning(model)
        has_bias = model.head is not None and model.head.use_bias
        is_own = has_bias or turning.qk_norm is not None or turning.position.fraction != 1
        return is_parallel(model) and super().fits(model) and is_own

    def choices(self, config):
        return {
            "block_type": layers.ParallelBlock,
            "position": lambda index: read_rotary(config, partial_rotary_factor=0.5),
            "has_qk_norm": config.flag("qk_layernorm"),
            "head_bias": True,
        }

    def more_options(self, model):
        attention = read_part(model, f"{FIRST}.attention")
        return {
            "hidden_act": activation_name(self.activation_of(model), tanh="gelu_new"),
            "partial_rotary_factor": attention.position.fraction,
            "qk_layernorm": attention.qk_norm is not None,
        }


class GPTNeoX(PlainDecoder):
    """GPT-NeoX and Pythia: parallel sublayers, each with a norm of its own, or one by one."""

    name, prefix = "GPTNeoX", "gpt_neox."
    heads = ("embed_out", CLASSIFIER, "classifier", "qa_outputs")
    head_names = {**RotaryDecoder.head_names, TAGS: {"head": "classifier"}}
    paths = paths_with("layer_norm_eps", without=("num_key_value_heads", "head_dim"))
    projections = {("query", "key", "value"): "query_key_value", "output": "dense"}
    by_group = True
    feed_forward = {"intermediate": "mlp.dense_h_to_4h", "output_dense": "mlp.dense_4h_to_h"}
    embedding, closing_norm, output_head = "embed_in", "final_layer_norm", "embed_out"
    attention = "attention."
    buffers = ("layers.*.attention.bias", "layers.*.attention.masked_bias")

    def fits(self, model):
        block = read_part(model, FIRST)
        if not super().fits(model) or not block.feed_forward.use_bias or any(model_windows(model)):
            return False
        has_own_keys = block.attention.num_heads == block.attention.num_key_value_heads
        return has_two_norms(block) and has_own_keys and divides_width(model)

    def biases(self, config):
        return super().biases(config) if config.flag("attention_bias", True) else ()

    def has_biases(self, config):
        return True

    def choices(self, config):
        base = config.number("rotary_emb_base", self.theta)
        share = config.number("rotary_pct", 0.25)
        is_parallel = config.flag("use_parallel_residual", True)
        return {
            "block_type": TWO_NORMS if is_parallel else layers.TransformerBlock,
            "position": lambda _: read_rotary(config, theta=base, partial_rotary_factor=share),
        }

    def convert_language_model(self, checkpoint, overrides):
        checkpoint.rename("lm_head.weight", "embed_out.weight")  # its name in memory
        return super().convert_language_model(checkpoint, overrides)

    def more_options(self, model):
        attention = read_part(model, f"{FIRST}.attention")
        return {
            "attention_bias": attention.use_bias,
            "rotary_pct": attention.position.fraction,  # where `rope_parameters` have none
            "use_parallel_residual": is_parallel(model),
        }


class GPTJ(PlainDecoder):
    """GPT-J: both sublayers by one norm, neighbours turn, and only the logits have a bias."""

    name, prefix = "GPTJ", "transformer."
    head_names = {head: RotaryDecoder.head_names[head] for head in (CLASSES, ANSWERS)}
    paths = {
        "vocab_size": "embedding.vocabulary_size",
        "n_embd": "embedding.hidden_dim",
        "n_layer": "depth.num_layers",
        "n_head": f"{FIRST}.attention.num_heads",
        "n_inner": WIDTH,
        "layer_norm_epsilon": EPSILON,
    }
    projections = {**PROJECTIONS, "output": "out_proj"}
    norms = {"attention_residual.norm": "ln_1"}  # of both sublayers
    feed_forward = {"intermediate": "mlp.fc_in", "output_dense": "mlp.fc_out"}
    embedding, blocks, attention, closing_norm = "wte", "h.{}.", "attn.", "ln_f"
    buffers = ("h.*.attn.bias", "h.*.attn.masked_bias")
    activation_option, default_activation = "activation_function", "gelu_new"

    def fits(self, model):
        layout = getattr(first_turning(model).position, "layout", None)
        return is_parallel(model) and super().fits(model) and layout == "interleaved"

    def biases(self, config):
        return ()

    def has_biases(self, config):
        return True

    def width(self, config):
        return config.size("n_inner", 4 * config.size("n_embd"))

    def choices(self, config):
        count, size = config.size("rotary_dim", 64), config.size("n_embd") // config.size("n_head")
        if count > size or count % 2:
            config.refuse(f"`rotary_dim` must be even and at most {size}, not {count}.")
        length = config.max_length or config.size("n_positions", 2048)
        rotary = positions.Rotary(self.theta, "interleaved", count / size, max_length=length)
        return {
            "block_type": layers.ParallelBlock,
            "position": lambda index: rotary.from_config(rotary.get_config()),
            "head_bias": True,
        }

    def position_options(self, model):
        attention = first_turning(model)
        return {
            "rotary_dim": round(attention.position.fraction * attention.key_dim),
            "n_positions": attention.position.max_length or 2048,
        }


class Falcon(PlainDecoder):
    """Falcon: parallel sublayers by one norm or two, or one by one; keys of all heads or groups."""

    name, prefix, tied = "Falcon", "transformer.", True
    heads, head_names = ("lm_head", *GPTNeoX.heads[1:]), GPTNeoX.head_names
    paths = {
        **paths_with(
            "layer_norm_epsilon", ("num_key_value_heads", "head_dim", "intermediate_size")
        ),
        "ffn_hidden_size": WIDTH,
    }
    projections, by_group = GPTNeoX.projections, True
    feed_forward = GPTNeoX.feed_forward
    embedding, blocks, attention = "word_embeddings", "h.{}.", "self_attention."
    closing_norm, activation_option = "ln_f", "activation"

    def fits(self, model):
        attention = read_part(model, f"{FIRST}.attention")
        is_plain = attention.num_key_value_heads in (1, attention.num_heads)
        is_plain = is_plain and divides_width(model) and not any(model_windows(model))
        return super().fits(model) and (is_parallel(model) or is_plain)

    def norms_of(self, block):
        if not has_two_norms(block):
            return Phi.norms
        if not isinstance(block, layers.ParallelBlock):
            return RotaryDecoder.norms
        return dict(zip(RotaryDecoder.norms, ("ln_attn", "ln_mlp"), strict=True))

    def biases(self, config):
        return super().biases(config) if config.flag("bias") else ()

    def width(self, config):
        return config.size("ffn_hidden_size", 4 * config.size("hidden_size"))

    def choices(self, config):
        config.require(alibi=False)  # transformers rounds it, and adds it twice without sdpa
        is_new, heads = config.flag("new_decoder_architecture"), config.size("num_attention_heads")
        if is_new:
            config.require(parallel_attn=True)
        block_type, groups = layers.TransformerBlock, heads
        if config.flag("parallel_attn", True):
            two_norms = is_new and config.size("num_ln_in_parallel_attn", 2) == 2
            block_type = TWO_NORMS if two_norms else layers.ParallelBlock
        if is_new:
            groups = config.size("num_kv_heads", heads)
        elif config.flag("multi_query", True):
            groups = 1
        return {**super().choices(config), "block_type": block_type, "num_key_value_heads": groups}

    def more_options(self, model):
        block = read_part(model, FIRST)
        heads, groups = block.attention.num_heads, block.attention.num_key_value_heads
        num_norms = 1 + has_two_norms(block)
        is_new = is_parallel(model) and (num_norms == 2 or groups not in (1, heads))
        return {
            "new_decoder_architecture": is_new,
            "num_kv_heads": groups if is_new else heads,
            "num_ln_in_parallel_attn": num_norms if is_new else None,
            "multi_query": is_new or groups == 1,  # which new ones do not read
            "parallel_attn": is_parallel(model),
            "bias": block.attention.use_bias,
        }
