"""Llama, Mistral, Qwen and Gemma: causal decoders of one builder and one table."""

import math

import numpy as np

from keras_attn import layers, norms, patterns, residuals, scores
from keras_attn.convert.hugging_face.classifiers import CLASSES, TAGS, TOKENS
from keras_attn.convert.hugging_face.config import (
    FULL,
    SLIDING,
    activation_name,
    layer_types,
    windows,
)
from keras_attn.convert.hugging_face.decoders import CLASSIFIER, FIRST, CausalFamily
from keras_attn.convert.hugging_face.family import build, read_options, read_part
from keras_attn.convert.hugging_face.rotary_positions import read_rotary, rotary_options
from keras_attn.convert.hugging_face.weights import (
    Fold,
    copy,
    copy_part,
    copy_projection,
    copy_table,
    numbers,
)
from keras_attn.models.papers.decoder import decoder
from keras_attn.ops.activations import gelu_tanh

PRE_NORMS = {
    "attention_residual.norm": "input_layernorm",
    "feed_forward_residual.norm": "post_attention_layernorm",
}
SANDWICH_NORMS = {
    "attention_residual.norm": "input_layernorm",
    "attention_residual.output_norm": "post_attention_layernorm",
    "feed_forward_residual.norm": "pre_feedforward_layernorm",
    "feed_forward_residual.output_norm": "post_feedforward_layernorm",
}
FEED_FORWARD = {
    "feed_forward.gate": "mlp.gate_proj",
    "feed_forward.intermediate": "mlp.up_proj",
    "feed_forward.output_dense": "mlp.down_proj",
}
PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}


class RotaryDecoder(CausalFamily):
    """Decoders with rotary positions and gates, which `decoder` builds; by default as Llama.

    Attributes:
        tied: bool. Value of `tie_word_embeddings` where the file has none.
        norm_offset: float. `offset` of the norms.
    """

    prefix = "model."
    heads = ("lm_head", CLASSIFIER, "qa_outputs")
    free = (*CausalFamily.free, "max_length")  # a limit changes no output
    tied = False
    norm_offset = 0.0
    # The path in the model of each option of `config.json`.
    paths = {
        "vocab_size": "embedding.vocabulary_size",
        "hidden_size": "embedding.hidden_dim",
        "num_hidden_layers": "depth.num_layers",
        "num_attention_heads": f"{FIRST}.attention.num_heads",
        "num_key_value_heads": f"{FIRST}.attention.num_key_value_heads",
        "head_dim": f"{FIRST}.attention.key_dim",
        "intermediate_size": f"{FIRST}.feed_forward.intermediate_dim",
        "rms_norm_eps": f"{FIRST}.attention_residual.norm.epsilon",
    }

    def choices(self, config):
        """Return arguments of `decoder` other than sizes, by which a family differs."""
        return {"position": lambda index: read_rotary(config)}

    def biases(self, config):
        """Return the names of the projections with a bias."""
        return ()

    def has_feed_forward_bias(self, config):
        """Return True if the feed-forward layers have biases."""
        return False

    def activation(self, config):
        """Return the activation of the gates."""
        return config.activation("hidden_act", "silu")

    def query_scale(self, config, size):
        """Return the factor of the queries before the score, for a size of the heads; or None."""
        return None

    def more_options(self, model):
        """Return the options of `config.json` beside those of all such decoders."""
        return {}

    def arguments(self, config):
        """Return the arguments of `decoder` for a configuration; by default id 0 is a token."""
        choices, use_bias = self.choices(config), bool(self.biases(config))
        width, num_heads = config.size("hidden_size"), config.size("num_attention_heads")
        vocabulary_size, num_layers = config.size("vocab_size"), config.size("num_hidden_layers")
        intermediate_dim, activation = config.size("intermediate_size"), self.activation(config)
        gate_bias = self.has_feed_forward_bias(config)

        def feed_forward(initializer):
            return layers.GatedFeedForward(
                intermediate_dim, activation, gate_bias, kernel_initializer=initializer
            )

        return {
            "vocabulary_size": vocabulary_size,
            "num_layers": num_layers,
            "num_heads": num_heads,
            "hidden_dim": width,
            "feed_forward": feed_forward,
            "key_dim": None if config.get("head_dim") is None else config.size("head_dim"),
            "num_key_value_heads": config.size("num_key_value_heads", num_heads),
            "norm": norms.RMSNorm(config.number("rms_norm_eps", 1e-6), offset=self.norm_offset),
            "use_bias": use_bias,
            "pattern": "causal",
            "pad_id": None,
            **choices,
        }

    def convert_language_model(self, checkpoint, overrides):
        """Return a `CausalLanguageModel` with the weights of a checkpoint.

        Overrides are `pattern`, which may be a function of the layer's index, `dropout`, `pad_id`,
        `name` and `max_length`, beyond which a text is refused. By default no id is padding.
        """
        config = checkpoint.config
        config.max_length = overrides.get("max_length")
        arguments = self.arguments(config)
        has_logits = self.read_head(checkpoint) == TOKENS
        tied = config.flag("tie_word_embeddings", self.tied) or not has_logits
        tied = tied and checkpoint.is_tied("lm_head.weight", "embed_tokens.weight")
        if arguments.get("logits_cap") is not None and not tied:
            config.refuse("A cap of logits is converted with tied embeddings only.")

        def build_model(
            pattern=arguments["pattern"],
            dropout=0.0,
            pad_id=None,
            name=config.get("model_type"),
            max_length=None,
        ):
            changed = {"pattern": pattern, "dropout": dropout, "pad_id": pad_id, "name": name}
            return decoder(**{**arguments, **changed}, tied=tied)

        model = build(build_model, {}, overrides)
        self.copy_language_model(checkpoint, model)
        return model

    def build_language_model(self, config, model):
        return decoder(**self.arguments(config), tied=model.head is None)

    def copy_language_model(self, checkpoint, model):
        copy_part(checkpoint, model, "embedding", "embed_tokens")
        copy_part(checkpoint, model, "depth.norm", "norm")
        if model.head is not None:
            copy_part(checkpoint, model, "head", "lm_head")
        for index, block in enumerate(model.depth.blocks):
            self._copy_block(checkpoint, block, f"layers.{index}.")

    def _copy_block(self, checkpoint, block, prefix):
        attention, biases = block.attention, self.biases(checkpoint.config)
        scale = self.query_scale(checkpoint.config, attention.key_dim)
        has_qk_norm = attention.qk_norm is not None
        for projection, name in PROJECTIONS.items():
            copy_projection(
                checkpoint,
                attention,
                projection,
                f"{prefix}self_attn.{name}",
                has_bias=projection in biases,
                # With a norm of queries the norm's gain takes the scale, which it would undo.
                scale=None if projection != "query" or has_qk_norm else scale,
            )
        if has_qk_norm:
            gain, offset = attention.qk_norm.scale, attention.qk_norm.offset
            scales = None if scale is None else (scale,)
            scaled = Fold([gain], tuple(gain.shape), scales=scales, offset=offset)
            checkpoint.transfer(f"{prefix}self_attn.q_norm.weight", scaled)
            copy(checkpoint, attention.key_norm.scale, f"{prefix}self_attn.k_norm.weight")
        is_sandwich = isinstance(block.residual, residuals.SandwichNorm)
        copy_table(checkpoint, block, SANDWICH_NORMS if is_sandwich else PRE_NORMS, prefix)
        copy_table(checkpoint, block, FEED_FORWARD, prefix)

    def language_options(self, model):
        return {
            **read_options(model, self.paths),
            **rotary_options(read_part(model, f"{FIRST}.attention")),
            "hidden_act": activation_name(read_part(model, f"{FIRST}.feed_forward.activation")),
            "tie_word_embeddings": model.head is None,
            **self.more_options(model),
            "architectures": [f"{self.name}ForCausalLM"],
        }


def rotary_decoder_type(model):
    """Return the `model_type` of the family whose features a model has; refuse other positions."""
    attention, residual, norm, bias = (
        read_part(model, f"{FIRST}.{path}")
        for path in ("attention", "residual", "residual.norm", "attention.use_bias")
    )
    if attention.position is None:
        raise ValueError(
            "`model` fits no family of checkpoints: a `CausalLanguageModel` must have `Learned` "
            "positions, `Rotary` ones in its attention, the score `Relative` or the depth "
            f"`Reversible`. Received: model.position={model.position!r}, "
            f"attention.score={attention.score!r}, model.depth={type(model.depth).__name__}."
        )
    has_qk_norm = attention.qk_norm is not None
    if type(residual) is residuals.SandwichNorm:
        return "gemma3_text" if has_qk_norm else "gemma2"
    if getattr(norm, "offset", 0.0):
        return "gemma"
    if has_qk_norm:
        return "qwen3"
    if bias and not np.any(numbers(attention.output_bias)):
        return "qwen2"
    return "llama" if model_windows(model)[0] is None else "mistral"


def window_pattern(window):
    """Return the function from a layer's index to its pattern, by one to its window or None."""

    def pattern(index):
        width = window(index)
        return "causal" if width is None else patterns.Local(width)

    return pattern


def model_windows(model):
    """Return the number of keys of a query in each layer, None where it is not bounded."""
    paths = [f"depth.blocks.{i}.attention.pattern" for i in range(len(model.depth.blocks))]
    used = [read_part(model, path) for path in paths]
    return [x.window if isinstance(x, patterns.Local) else None for x in used]


def window_options(model):
    """Return the options of layers with a window among those without one."""
    widths = model_windows(model)
    sizes = [width for width in widths if width is not None]
    return {
        "layer_types": [FULL if width is None else SLIDING for width in widths],
        "sliding_window": sizes[0] if sizes else 4096,  # Gemma asks for one without such layers
    }


def all_or_no_biases(config):
    """Return the names of the projections with a bias, by the option `attention_bias`."""
    return tuple(PROJECTIONS) if config.flag("attention_bias") else ()


class Llama(RotaryDecoder):
    """Llama 2 and 3."""

    name, answers_prefix = "Llama", "transformer."

    def biases(self, config):
        return all_or_no_biases(config)

    def has_feed_forward_bias(self, config):
        return config.flag("mlp_bias")

    def more_options(self, model):
        paths = {
            "attention_bias": f"{FIRST}.attention.use_bias",
            "mlp_bias": f"{FIRST}.feed_forward.use_bias",
        }
        return read_options(model, paths)


class Mistral(RotaryDecoder):
    """Mistral: Llama with a window of keys in each layer."""

    name = "Mistral"

    def choices(self, config):
        config.require(layer_types=None)
        # Null stands for no window, an absent key for the default.
        window = config.values.get("sliding_window", 4096)
        return {**super().choices(config), "pattern": window_pattern(lambda index: window)}

    def more_options(self, model):
        return {"sliding_window": model_windows(model)[0]}


class Qwen2(RotaryDecoder):
    """Qwen 2: Llama with biases and, in some layers, a window."""

    name, answers_prefix = "Qwen2", "transformer."

    def choices(self, config):
        has_window = config.flag("use_sliding_window")
        first = config.number("max_window_layers", 28) if has_window else None
        types = layer_types(config, lambda index: first is not None and index >= first)
        return {**super().choices(config), "pattern": window_pattern(windows(config, types))}

    def biases(self, config):
        return ("query", "key", "value")

    def more_options(self, model):
        return {**window_options(model), "use_sliding_window": any(model_windows(model))}


class Qwen3(Qwen2):
    """Qwen 3: Qwen 2 with norms of queries and keys in the place of biases."""

    name = "Qwen3"

    def choices(self, config):
        return {**super().choices(config), "has_qk_norm": True}

    def biases(self, config):
        return all_or_no_biases(config)

    def more_options(self, model):
        use_bias = read_part(model, f"{FIRST}.attention.use_bias")
        return {**super().more_options(model), "attention_bias": use_bias}


class Gemma(RotaryDecoder):
    """Gemma 1: Llama with other norms, and the approximation of GELU by tanh."""

    name = "Gemma"
    head_names = {head: RotaryDecoder.head_names[head] for head in (CLASSES, TAGS)}
    default_pad_id = 0
    tied = True
    norm_offset = 1.0

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

    def types(self, config):
        """Return the type of each layer."""
        return layer_types(config, lambda index: index % 2 == 0)

    def choices(self, config):
        return {
            **super().choices(config),
            "score": self.score(config),
            "pattern": window_pattern(windows(config, self.types(config))),
            "residual": "sandwich_norm",
            "logits_cap": _cap(config, "final_logit_softcapping", self.default_logits_cap),
        }

    def score(self, config):
        """Return the score of the attention."""
        cap = _cap(config, "attn_logit_softcapping", 50.0)
        return "scaled_dot" if cap is None else scores.SoftCap(scores.DotProduct(), cap)

    def activation(self, config):
        return config.activation("hidden_activation", "gelu_pytorch_tanh")

    def query_scale(self, config, size):
        return math.sqrt(size / config.number("query_pre_attn_scalar", 256))

    def more_options(self, model):
        score = read_part(model, f"{FIRST}.attention.score")
        cap = score.cap if isinstance(score, scores.SoftCap) else None
        return {**self.sandwich_options(model), "attn_logit_softcapping": cap}

    def sandwich_options(self, model):
        """Return the options that Gemma 2 and 3 share."""
        activation = read_part(model, f"{FIRST}.feed_forward.activation")
        return {
            **super().more_options(model),
            **window_options(model),
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
        options = self.sandwich_options(model)
        by_type = {FULL: {"rope_theta": 1e6}, SLIDING: {"rope_theta": 1e4}}
        for kind, block in zip(options["layer_types"], model.depth.blocks, strict=True):
            by_type[kind] = rotary_options(block.attention)["rope_parameters"]
        return {**options, "rope_parameters": by_type}


def _cap(config, name, default):
    """Return a cap: null in the file stands for none, an absent key for the default."""
    return config.values.get(name, default)
