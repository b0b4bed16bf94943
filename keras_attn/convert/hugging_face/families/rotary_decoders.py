"""Llama, Mistral, Qwen, OLMo, SmolLM, Phi-3 and Granite: causal decoders of one builder."""

import math

import numpy as np

from keras_attn import layers, norms, patterns, residuals
from keras_attn.convert.hugging_face.config import (
    FULL,
    SLIDING,
    activation_name,
    layer_types,
    windows,
)
from keras_attn.convert.hugging_face.families.causal_family import CLASSIFIER, FIRST, CausalFamily
from keras_attn.convert.hugging_face.families.family import build, read_options, read_part
from keras_attn.convert.hugging_face.families.rotary_positions import read_rotary, rotary_options
from keras_attn.convert.hugging_face.heads import CLASSES, TAGS, TOKENS
from keras_attn.convert.hugging_face.weights import (
    Fold,
    copy,
    copy_joined_heads,
    copy_part,
    copy_projection,
    copy_table,
    numbers,
)
from keras_attn.models.papers.decoder import decoder

PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}
NORMS = {
    "attention_residual.norm": "input_layernorm",
    "feed_forward_residual.norm": "post_attention_layernorm",
}


class RotaryDecoder(CausalFamily):
    """Decoders with rotary positions, which `decoder` builds; by default as Llama.

    A family is tables of names and `choices`. A key of a table is a path, or a tuple of the paths
    of layers that the file joins to one.

    Attributes:
        tied: bool. Value of `tie_word_embeddings` where the file has none.
        epsilon: float. That of the norms where the file has none.
        theta: float. Base of the positions where the file has none.
        projections: table of the attention.
        qk_norms: table of the norms of queries and keys.
        norms: table of the norms of a block.
        by_group: bool. True if joined projections have the rows of one group of heads after those
            of another.
        feed_forward: table of the feed-forward layer, with the beginning of its names.
        embedding: str. Name of the token table.
        blocks: str. Beginning of the names of a block, with a field `{}` for its index.
        attention: str. Beginning of the names of an attention layer in its block.
        closing_norm: str. Name of the norm after the last block.
        output_head: str. Name of the layer of logits that share no table.
        buffers: patterns of names of constants that old files hold.
        activation_option: str. Option of the activation of the feed-forward layers.
        paths: path in the model of each option of `config.json`.
    """

    prefix = "model."
    heads = ("lm_head", CLASSIFIER, "qa_outputs")
    free = (*CausalFamily.free, "max_length")  # a limit changes no output
    tied = False
    epsilon = 1e-6
    theta = 10000.0
    projections = PROJECTIONS
    qk_norms = {"qk_norm": "q_norm", "key_norm": "k_norm"}
    norms = NORMS
    feed_forward = {
        "gate": "mlp.gate_proj",
        "intermediate": "mlp.up_proj",
        "output_dense": "mlp.down_proj",
    }
    by_group = False
    embedding = "embed_tokens"
    blocks = "layers.{}."
    attention = "self_attn."
    closing_norm = "norm"
    output_head = "lm_head"
    buffers = ()
    activation_option = "hidden_act"
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
        return {"position": lambda index: read_rotary(config, theta=self.theta)}

    def biases(self, config):
        """Return the names of the projections with a bias."""
        return ()

    def norm(self, config):
        """Return the norm of the residuals, and of queries and keys."""
        return norms.RMSNorm(config.number("rms_norm_eps", self.epsilon))

    def norms_of(self, block):
        """Return the table of the norms of a block."""
        return self.norms

    def option(self, path):
        """Return the option of `config.json` for a path in the model."""
        return next(name for name, own in self.paths.items() if own == path)

    def activation(self, config):
        """Return the activation of the feed-forward layers."""
        return config.activation(self.activation_option, "silu")

    def feed_forward_of(self, config):
        """Return the function from an initializer and an index to a feed-forward layer."""
        width, activation = config.size("intermediate_size"), self.activation(config)
        use_bias = config.flag("mlp_bias")

        def feed_forward(initializer, index):
            return layers.GatedFeedForward(
                width, activation, use_bias, kernel_initializer=initializer
            )

        return feed_forward

    def query_scale(self, config, size):
        """Return the factor of the queries before the score, for a size of the heads; or None."""
        return None

    def position_options(self, model):
        """Return the options of `config.json` for the positions."""
        return rotary_options(first_turning(model))

    def more_options(self, model):
        """Return the options of `config.json` beside those of all such decoders."""
        return {}

    def arguments(self, config):
        """Return the arguments of `decoder` for a configuration; by default id 0 is a token."""
        num_heads = config.size(self.option(f"{FIRST}.attention.num_heads"))
        return {
            "vocabulary_size": config.size(self.option("embedding.vocabulary_size")),
            "num_layers": config.size(self.option("depth.num_layers")),
            "num_heads": num_heads,
            "hidden_dim": config.size(self.option("embedding.hidden_dim")),
            "feed_forward": self.feed_forward_of(config),
            "key_dim": None if config.get("head_dim") is None else config.size("head_dim"),
            "num_key_value_heads": config.size("num_key_value_heads", num_heads),
            "norm": self.norm(config),
            "use_bias": bool(self.biases(config)),
            "pattern": "causal",
            "pad_id": None,
            **self.choices(config),
        }

    def convert_language_model(self, checkpoint, overrides):
        """Return a `CausalLanguageModel` with the weights of a checkpoint.

        Overrides are `pattern`, which may be a function of the layer's index, `dropout`, `pad_id`,
        `name` and `max_length`, beyond which a text is refused. By default no id is padding.
        """
        config = checkpoint.config
        checkpoint.ignore(*self.buffers)
        config.max_length = overrides.get("max_length")
        arguments = self.arguments(config)
        tied = self.drop_tied_head(checkpoint)
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

    def drop_tied_head(self, checkpoint):
        """Leave out a head that is the token table; return True if there is no other head."""
        tied = checkpoint.config.flag("tie_word_embeddings", self.tied)
        tied = tied or self.read_head(checkpoint) != TOKENS
        copy, table = f"{self.output_head}.weight", f"{self.embedding}.weight"
        tied = tied and checkpoint.drop_if_equal(copy, table)
        if tied and checkpoint.has(f"{self.output_head}.bias"):  # which a table has not
            checkpoint.derive(copy, [table])
            return False
        return tied

    def build_language_model(self, config, model):
        return decoder(**self.arguments(config), tied=model.head is None)

    def copy_language_model(self, checkpoint, model):
        self.copy_embedding(checkpoint, model)
        if model.depth.norm is not None:
            copy_part(checkpoint, model, "depth.norm", self.closing_norm)
        if model.head is not None:
            copy_part(checkpoint, model, "head", self.output_head)
        for index, block in enumerate(model.depth.blocks):
            prefix = self.blocks.format(index)
            self.copy_attention(checkpoint, block.attention, prefix + self.attention)
            copy_table(checkpoint, block, self.norms_of(block), prefix)
            self.copy_feed_forward(checkpoint, block.feed_forward, prefix)

    def copy_embedding(self, checkpoint, model):
        """Copy the token table."""
        copy_part(checkpoint, model, "embedding", self.embedding)

    def copy_attention(self, checkpoint, attention, prefix):
        """Copy the projections of an attention layer, and its norms of queries and keys."""
        biases = self.biases(checkpoint.config)
        scale = self.query_scale(checkpoint.config, attention.key_dim)
        has_qk_norm = attention.qk_norm is not None
        for projection, name in self.projections.items():
            if isinstance(projection, tuple):
                copy_joined_heads(checkpoint, attention, prefix + name, self.by_group)
                continue
            copy_projection(
                checkpoint,
                attention,
                projection,
                prefix + name,
                has_bias=projection in biases,
                # A norm of the queries undoes a scale of their kernel: its gain takes the scale.
                scale=None if projection != "query" or has_qk_norm else scale,
            )
        if has_qk_norm and scale is None:
            copy_table(checkpoint, attention, self.qk_norms, prefix)
        elif has_qk_norm:
            gain, offset = attention.qk_norm.scale, attention.qk_norm.offset
            scaled = Fold([gain], tuple(gain.shape), scales=(scale,), offset=offset)
            checkpoint.transfer(f"{prefix}q_norm.weight", scaled)
            copy(checkpoint, attention.key_norm.scale, f"{prefix}k_norm.weight")

    def copy_feed_forward(self, checkpoint, layer, prefix):
        """Copy a feed-forward layer."""
        copy_table(checkpoint, layer, self.feed_forward, prefix)

    def language_options(self, model):
        return {
            **read_options(model, self.paths),
            **self.position_options(model),
            self.activation_option: activation_name(self.activation_of(model)),
            "tie_word_embeddings": model.head is None,
            **self.more_options(model),
            "architectures": [f"{self.name}ForCausalLM"],
        }

    def activation_of(self, model):
        """Return the activation of a model's feed-forward layers."""
        return read_part(model, f"{FIRST}.feed_forward.activation")


def first_turning(model):
    """Return the first attention layer of a model with a position; refuse a model without one."""
    attentions = [read_part(block, "attention") for block in read_part(model, "depth.blocks")]
    turning = [x for x in attentions if getattr(x, "position", None) is not None]
    if not turning:
        first = attentions[0]
        raise ValueError(
            "`model` fits no family of checkpoints: a `CausalLanguageModel` must have `Learned` "
            "positions, `Rotary` ones or `ALiBi` in its attention, the score `Relative` or the "
            f"depth `Reversible`. Received: model.position={model.position!r}, attention.score="
            f"{getattr(first, 'score', None)!r}, model.depth={type(model.depth).__name__}."
        )
    return turning[0]


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


def window_options(model, default=None):
    """Return the options of layers with a window among those without one.

    Some families need the `default` of a window that no layer has.
    """
    widths = model_windows(model)
    sizes = [width for width in widths if width is not None]
    return {
        "layer_types": [FULL if width is None else SLIDING for width in widths],
        "sliding_window": sizes[0] if sizes else default,
    }


def all_or_no_biases(config):
    """Return the names of the projections with a bias, by the option `attention_bias`."""
    return tuple(PROJECTIONS) if config.flag("attention_bias") else ()


def bias_options(model):
    """Return the options of biases in all projections, and in all feed-forward layers."""
    paths = {
        "attention_bias": f"{FIRST}.attention.use_bias",
        "mlp_bias": f"{FIRST}.feed_forward.use_bias",
    }
    return read_options(model, paths)


class Llama(RotaryDecoder):
    """Llama 2 and 3."""

    name, answers_prefix = "Llama", "transformer."

    def biases(self, config):
        return all_or_no_biases(config)

    def more_options(self, model):
        return bias_options(model)


class Mistral(RotaryDecoder):
    """Mistral: Llama with a window of keys in each layer."""

    name = "Mistral"
    window = 4096  # where the file has none

    def fits(self, model):
        return model_windows(model)[0] is not None

    def choices(self, config):
        config.require(layer_types=None)
        window = config.optional(config.size, "sliding_window", self.window)
        return {**super().choices(config), "pattern": window_pattern(lambda index: window)}

    def more_options(self, model):
        return {"sliding_window": model_windows(model)[0]}


class Qwen2(RotaryDecoder):
    """Qwen 2: Llama with biases and, in some layers, a window."""

    name, answers_prefix = "Qwen2", "transformer."

    def fits(self, model):
        attentions = [read_part(block, "attention") for block in model.depth.blocks]
        return all(x.use_bias and not np.any(numbers(x.output_bias)) for x in attentions)

    def choices(self, config):
        has_window = config.flag("use_sliding_window")
        first = config.number("max_window_layers", 28) if has_window else None
        types = layer_types(config, lambda index: first is not None and index >= first)
        window = windows(config, types, is_used=has_window)
        return {**super().choices(config), "pattern": window_pattern(window)}

    def biases(self, config):
        return ("query", "key", "value")

    def more_options(self, model):
        return {**window_options(model), "use_sliding_window": any(model_windows(model))}


class Qwen3(Qwen2):
    """Qwen 3: Qwen 2 with norms of queries and keys in the place of biases."""

    name = "Qwen3"

    def fits(self, model):
        return read_part(model, f"{FIRST}.attention").qk_norm is not None

    def choices(self, config):
        return {**super().choices(config), "has_qk_norm": True}

    def biases(self, config):
        return all_or_no_biases(config)

    def more_options(self, model):
        use_bias = read_part(model, f"{FIRST}.attention.use_bias")
        return {**super().more_options(model), "attention_bias": use_bias}


class Olmo2(RotaryDecoder):
    """OLMo 2: Llama with norms of outputs in place of inputs, and of all queries and all keys."""

    name = "Olmo2"
    head_names = {CLASSES: RotaryDecoder.head_names[CLASSES]}
    default_pad_id = 1
    epsilon = 1e-5
    norms = {
        "attention_residual.norm": "post_attention_layernorm",
        "feed_forward_residual.norm": "post_feedforward_layernorm",
    }

    def fits(self, model):
        return type(read_part(model, f"{FIRST}.residual")) is residuals.OutputNorm

    def choices(self, config):
        choices = {"residual": "output_norm", "has_qk_norm": True, "qk_norm_axis": "heads"}
        return {**super().choices(config), **choices}

    def biases(self, config):
        return all_or_no_biases(config)

    def more_options(self, model):
        return {"attention_bias": read_part(model, f"{FIRST}.attention.use_bias")}


class Olmo3(Olmo2):
    """OLMo 3: OLMo 2 with windows in three of four layers, and positions by the type of a layer."""

    name = "Olmo3"
    theta = 500000.0

    def fits(self, model):
        return super().fits(model) and any(model_windows(model))

    def choices(self, config):
        # Beside `rope_parameters`, transformers applies `rope_theta` to the full layers only.
        config.require(rope_theta=self.theta)
        types = layer_types(config, lambda index: (index + 1) % 4)

        def position(index):
            if types[index] == SLIDING:
                return read_rotary(config, SLIDING, "", self.theta)
            return read_rotary(config, FULL, theta=self.theta)

        pattern = window_pattern(windows(config, types))
        return {**super().choices(config), "position": position, "pattern": pattern}

    def more_options(self, model):
        options = {**super().more_options(model), **window_options(model, 4096)}
        bases = dict.fromkeys((FULL, SLIDING), self.theta)
        return {**options, "rope_parameters": parameters_by_type(model, bases)}


def parameters_by_type(model, bases):
    """Return the `rope_parameters` of each type of layers, of which a model may lack one."""
    by_type = {kind: {"rope_theta": base} for kind, base in bases.items()}
    for window, block in zip(model_windows(model), model.depth.blocks, strict=True):
        kind = FULL if window is None else SLIDING
        by_type[kind] = rotary_options(block.attention)["rope_parameters"]
    return by_type


class SmolLM3(RotaryDecoder):
    """SmolLM 3: Llama without positions in some layers, of which those may have windows."""

    name, answers_prefix = "SmolLM3", "transformer."
    default_pad_id = 128004
    tied = True
    theta = 2000000.0

    def fits(self, model):
        return any(block.attention.position is None for block in model.depth.blocks)

    def choices(self, config):
        turns = config.values.get("no_rope_layers")  # 1 for a layer that has positions
        if turns is None:
            period = config.size("no_rope_layer_interval", 4)
            turns = [(i + 1) % period for i in range(config.size("num_hidden_layers"))]
        elif len(config.integers("no_rope_layers")) != config.size("num_hidden_layers"):
            config.refuse(f"`no_rope_layers` must have a number for each layer, not {turns!r}.")
        has_window = config.optional(config.size, "sliding_window", None) is not None
        has_window &= config.flag("use_sliding_window")
        types = layer_types(config, lambda index: has_window and not turns[index])

        def position(index):
            return read_rotary(config, theta=self.theta) if turns[index] else None

        pattern = window_pattern(windows(config, types, None, has_window))
        return {**super().choices(config), "position": position, "pattern": pattern}

    def biases(self, config):
        return all_or_no_biases(config)

    def more_options(self, model):
        turns = [int(block.attention.position is not None) for block in model.depth.blocks]
        has_window = any(model_windows(model))
        options = {"no_rope_layers": turns, "use_sliding_window": has_window}
        return {**bias_options(model), **window_options(model), **options}


class Phi3(Mistral):
    """Phi-3 and 4: Mistral with joined layers, whose heads may turn in part."""

    name = "Phi3"
    head_names = {head: RotaryDecoder.head_names[head] for head in (CLASSES, TAGS)}
    default_pad_id = 32000
    epsilon = 1e-5
    window = None
    projections = {("query", "key", "value"): "qkv_proj", "output": "o_proj"}
    feed_forward = {
        ("gate", "intermediate"): "mlp.gate_up_proj",
        "output_dense": "mlp.down_proj",
    }

    def fits(self, model):
        return first_turning(model).position.fraction != 1

    def choices(self, config):
        rope = config.options("rope_scaling") or config.options("rope_parameters") or {}
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind not in ("default", "longrope", "su"):  # transformers reads yarn as longrope
            config.refuse(f"The rope_type {kind!r} of a Phi-3 is not converted, only longrope.")
        defaults = {"partial_rotary_factor": 1.0, "original_max_position_embeddings": 4096}
        return {**super().choices(config), "position": lambda _: read_rotary(config, **defaults)}


class Granite(Llama):
    """Granite: Llama with four factors, which become part of the weights."""

    name = "Granite"
    head_names = {}

    def convert_language_model(self, checkpoint, overrides):
        model, config = super().convert_language_model(checkpoint, overrides), checkpoint.config
        embedding = config.positive("embedding_multiplier", 1.0)
        residual = config.number("residual_multiplier", 1.0)
        score = config.number("attention_multiplier", 1.0)
        logits = 1.0
        if self.read_head(checkpoint) == TOKENS:
            logits = 1 / config.positive("logits_scaling", 1.0)
            logits /= embedding if model.head is None else 1.0
        factors = [(model.embedding.table, embedding), (model.depth.norm.scale, logits)]
        for block in model.depth.blocks:
            attention, output = block.attention, block.feed_forward.output_dense
            size = math.sqrt(attention.key_dim)
            factors += [
                (attention.query_kernel, score * size),
                (attention.query_bias, score * size),
            ]
            factors += [(attention.output_kernel, residual), (attention.output_bias, residual)]
            factors += [(output.kernel, residual), (output.bias, residual)]
        for variable, factor in factors:
            if variable is not None and factor != 1:
                variable.assign(variable * factor)
        return model
