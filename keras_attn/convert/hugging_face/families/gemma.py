"""Gemma 1 to 3: rotary decoders with other gains of norms, norms of outputs, and caps."""

import math

from keras_attn import norms, residuals, scores
from keras_attn.convert.hugging_face.config import (
    FULL,
    SLIDING,
    activation_name,
    layer_types,
    windows,
)
from keras_attn.convert.hugging_face.families.causal_family import FIRST
from keras_attn.convert.hugging_face.families.family import read_part
from keras_attn.convert.hugging_face.families.rotary_decoders import (
    RotaryDecoder,
    all_or_no_biases,
    parameters_by_type,
    window_options,
    window_pattern,
)
from keras_attn.convert.hugging_face.families.rotary_positions import read_rotary
from keras_attn.convert.hugging_face.heads import CLASSES, TAGS
from keras_attn.ops.activations import gelu_tanh


class Gemma(RotaryDecoder):
    """Gemma 1: Llama with other norms, and the approximation of GELU by tanh."""

    name = "Gemma"
    head_names = {head: RotaryDecoder.head_names[head] for head in (CLASSES, TAGS)}
    default_pad_id = 0
    tied = True

    def fits(self, model):
        return getattr(read_part(model, f"{FIRST}.residual.norm"), "offset", 0.0) != 0

    def norm(self, config):
        return norms.RMSNorm(config.number("rms_norm_eps", self.epsilon), offset=1.0)

    def choices(self, config):
        config.require(use_bidirectional_attention=False)
        return {**super().choices(config), "scaled": True}

    def biases(self, config):
        return all_or_no_biases(config)

    def activation(self, config):
        if config.get("hidden_activation") is not None:
            return config.activation("hidden_activation", "gelu_pytorch_tanh")
        if config.get("hidden_act") == "gelu":  # of the first files, which mean its approximation
            return gelu_tanh
        return config.activation("hidden_act", "gelu_pytorch_tanh")

    def more_options(self, model):
        attention = read_part(model, f"{FIRST}.attention")
        return {"attention_bias": attention.use_bias}


class Gemma2(Gemma):
    """Gemma 2: Gemma 1 with windows in every other layer, norms of the outputs, and caps."""

    name = "Gemma2"
    default_logits_cap = 30.0
    norms = {
        "attention_residual.norm": "input_layernorm",
        "attention_residual.output_norm": "post_attention_layernorm",
        "feed_forward_residual.norm": "pre_feedforward_layernorm",
        "feed_forward_residual.output_norm": "post_feedforward_layernorm",
    }

    def fits(self, model):
        return type(read_part(model, f"{FIRST}.residual")) is residuals.SandwichNorm

    def types(self, config):
        """Return the type of each layer."""
        return layer_types(config, lambda index: index % 2 == 0)

    def choices(self, config):
        return {
            **super().choices(config),
            "score": self.score(config),
            "pattern": window_pattern(windows(config, self.types(config))),
            "residual": "sandwich_norm",
            "logits_cap": config.optional(
                config.positive, "final_logit_softcapping", self.default_logits_cap
            ),
        }

    def score(self, config):
        """Return the score of the attention."""
        cap = config.optional(config.positive, "attn_logit_softcapping", 50.0)
        return "scaled_dot" if cap is None else scores.SoftCap(scores.DotProduct(), cap)

    def activation(self, config):
        return config.activation("hidden_activation", "gelu_pytorch_tanh")

    def query_scale(self, config, size):
        return math.sqrt(size / config.positive("query_pre_attn_scalar", 256))

    def more_options(self, model):
        score = read_part(model, f"{FIRST}.attention.score")
        cap = score.cap if isinstance(score, scores.SoftCap) else None
        return {**self.sandwich_options(model), "attn_logit_softcapping": cap}

    def sandwich_options(self, model):
        """Return the options that Gemma 2 and 3 share."""
        activation = self.activation_of(model)
        return {
            **super().more_options(model),
            **window_options(model, 4096),
            "hidden_activation": activation_name(activation),
            # The scale 1 / sqrt(H), which the weights of queries need not be multiplied with.
            "query_pre_attn_scalar": read_part(model, f"{FIRST}.attention.key_dim"),
            "final_logit_softcapping": model.embedding.logits_cap if model.head is None else None,
        }


class Gemma3(Gemma2):
    """Gemma 3: Gemma 2 with norms of queries and keys, and positions by the type of a layer."""

    name, classifier_name = "Gemma3", "Gemma3Text"
    head_names = {CLASSES: Gemma.head_names[CLASSES]}
    default_logits_cap = None

    def fits(self, model):
        return super().fits(model) and read_part(model, f"{FIRST}.attention").qk_norm is not None

    def types(self, config):
        period = config.size("sliding_window_pattern", 6)
        return layer_types(config, lambda index: (index + 1) % period)

    def choices(self, config):
        types = self.types(config)

        def position(index):
            if types[index] == SLIDING:
                return read_rotary(config, SLIDING, "rope_local_base_freq", 1e4)
            return read_rotary(config, FULL, theta=1e6)

        return {**super().choices(config), "position": position, "has_qk_norm": True}

    def score(self, config):
        return "scaled_dot"

    def more_options(self, model):
        bases = {FULL: 1e6, SLIDING: 1e4}
        parameters = parameters_by_type(model, bases)
        return {**self.sandwich_options(model), "rope_parameters": parameters}
