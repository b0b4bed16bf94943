"""Rotary decoders without gates, whose norms have biases: StarCoder 2, Phi in parallel blocks."""

from keras_attn import layers, norms
from keras_attn.convert.hugging_face.classifiers import CLASSES, TAGS
from keras_attn.convert.hugging_face.config import activation_name
from keras_attn.convert.hugging_face.decoders import FIRST
from keras_attn.convert.hugging_face.family import read_part
from keras_attn.convert.hugging_face.rotary_decoders import (
    RotaryDecoder,
    model_windows,
    window_pattern,
)
from keras_attn.convert.hugging_face.rotary_positions import read_rotary


class PlainDecoder(RotaryDecoder):
    """Rotary decoders of a `LayerNorm` and a feed-forward network without gates.

    Attributes:
        epsilon_option: str. Option of the epsilon of the norms.
    """

    epsilon = 1e-5
    epsilon_option = "layer_norm_eps"
    feed_forward = {"intermediate": "mlp.fc1", "output_dense": "mlp.fc2"}

    def fits(self, model):
        return type(read_part(model, f"{FIRST}.feed_forward")) is layers.FeedForward

    def biases(self, config):
        """Return the names of the projections with a bias; without one no other layer has one."""
        return ("query", "key", "value", "output")

    def norm(self, config):
        return norms.LayerNorm(config.number(self.epsilon_option, self.epsilon))

    def feed_forward_of(self, config):
        width, activation = config.size("intermediate_size"), self.activation(config)
        use_bias = bool(self.biases(config))

        def feed_forward(initializer, index):
            return layers.FeedForward(width, activation, use_bias, kernel_initializer=initializer)

        return feed_forward

    def language_options(self, model):
        options = super().language_options(model)
        return {**options, self.epsilon_option: options.pop("rms_norm_eps")}


class Starcoder2(PlainDecoder):
    """StarCoder 2."""

    name = "Starcoder2"
    head_names = {head: RotaryDecoder.head_names[head] for head in (CLASSES, TAGS)}
    tied = True
    epsilon_option = "norm_epsilon"
    feed_forward = {"intermediate": "mlp.c_fc", "output_dense": "mlp.c_proj"}

    def choices(self, config):
        pattern = window_pattern(lambda index: config.get("sliding_window"))
        return {**super().choices(config), "pattern": pattern}

    def biases(self, config):
        return super().biases(config) if config.flag("use_bias", True) else ()

    def activation(self, config):
        return config.activation("hidden_act", "gelu_pytorch_tanh")

    def more_options(self, model):
        return {
            "use_bias": read_part(model, f"{FIRST}.attention.use_bias"),
            "sliding_window": model_windows(model)[0],
        }


class ParallelDecoder(PlainDecoder):
    """Decoders whose attention and feed-forward network read the same input; by default as Phi."""

    norms = {"attention_residual.norm": "input_layernorm"}  # of both sublayers
    closing_norm = "final_layernorm"

    def fits(self, model):
        return isinstance(read_part(model, FIRST), layers.ParallelBlock)

    def choices(self, config):
        return {**super().choices(config), "block_type": layers.ParallelBlock}


class Phi(ParallelDecoder):
    """Phi 1, 1.5 and 2."""

    name = "Phi"
    head_names = {head: RotaryDecoder.head_names[head] for head in (CLASSES, TAGS)}
    projections = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "dense"}
    qk_norms = {"qk_norm": "q_layernorm", "key_norm": "k_layernorm"}

    def choices(self, config):
        return {
            **super().choices(config),
            "position": lambda index: read_rotary(config, partial_rotary_factor=0.5),
            "has_qk_norm": config.flag("qk_layernorm"),
            "head_bias": True,
        }

    def activation(self, config):
        return config.activation("hidden_act", "gelu_new")

    def more_options(self, model):
        attention = read_part(model, f"{FIRST}.attention")
        return {
            "hidden_act": activation_name(self.activation_of(model), tanh="gelu_new"),
            "partial_rotary_factor": attention.position.fraction,
            "qk_layernorm": attention.qk_norm is not None,
        }
