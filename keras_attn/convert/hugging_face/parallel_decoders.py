"""Decoders without gates, whose norms have biases: StarCoder 2, Phi and GPT-NeoX."""

import functools

from keras_attn import layers, norms
from keras_attn.convert.hugging_face.classifiers import CLASSES, TAGS
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.decoders import CLASSIFIER, FIRST
from keras_attn.convert.hugging_face.family import read_part
from keras_attn.convert.hugging_face.rotary_decoders import (
    PROJECTIONS,
    RotaryDecoder,
    model_windows,
    window_pattern,
)
from keras_attn.convert.hugging_face.rotary_positions import read_rotary

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
        return is_parallel(model) and super().fits(model)

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
        has_two_norms = block.attention_residual is not block.feed_forward_residual
        return has_two_norms and block.attention.num_heads == block.attention.num_key_value_heads

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
        checkpoint.replace("embed_out.weight", "lm_head.weight")  # its name in memory
        return super().convert_language_model(checkpoint, overrides)

    def more_options(self, model):
        attention = read_part(model, f"{FIRST}.attention")
        return {
            "attention_bias": attention.use_bias,
            "rotary_pct": attention.position.fraction,  # where `rope_parameters` have none
            "use_parallel_residual": is_parallel(model),
        }
