"""Mixtral, Qwen with experts and gpt-oss: rotary decoders whose tokens choose among experts."""

import math

import numpy as np

from keras_attn import layers
from keras_attn.convert.hugging_face.config import layer_types, windows
from keras_attn.convert.hugging_face.families.causal_family import FIRST
from keras_attn.convert.hugging_face.families.family import read_part
from keras_attn.convert.hugging_face.families.rotary_decoders import (
    RotaryDecoder,
    all_or_no_biases,
    model_windows,
    window_options,
    window_pattern,
)
from keras_attn.convert.hugging_face.families.rotary_positions import read_rotary
from keras_attn.convert.hugging_face.heads import CLASSES, TAGS
from keras_attn.convert.hugging_face.weights import Fold, copy, copy_table
from keras_attn.models.papers.gpt_oss import ClippedGatedFeedForward
from keras_attn.ops.activations import gelu_sigmoid

_KERNELS = ("gate_kernel", "intermediate_kernel", "output_kernel")
# The 16 values of FP4 (E2M1), whose first bit is the sign.
_FOUR_BITS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], "float32")


class ExpertDecoder(RotaryDecoder):
    """Rotary decoders with experts, stored one by one or joined; written one by one.

    Attributes:
        router: str. Name of the router of a block whose experts are stored one by one.
        experts: names of an expert's layers there, with a field `{}` for its index, in the order
            of computation.
        count_option, width_option: str. Options of the number and of the width of experts.
        top_k: int. Value of `num_experts_per_tok` where the file has none.
    """

    free = (*RotaryDecoder.free, "balance_loss", "z_loss")
    router = "mlp.gate"
    experts = tuple(f"mlp.experts.{{}}.{name}_proj" for name in ("gate", "up", "down"))
    count_option = "num_experts"
    width_option = "moe_intermediate_size"
    top_k = None
    paths = {k: v for k, v in RotaryDecoder.paths.items() if k != "intermediate_size"}

    def fits(self, model):
        return bool(expert_layers(model))

    def is_renormalized(self, config):
        """Return True if the weights of the chosen experts have the sum 1."""
        return True

    def mixture(self, config, initializer, **options):
        """Return the experts of a block."""
        top_k = config.size("num_experts_per_tok", self.top_k)
        is_renormalized = self.is_renormalized(config)
        if top_k == 1 and is_renormalized:
            config.refuse("The option num_experts_per_tok=1 is converted only without a norm.")
        weight = config.number("router_aux_loss_coef", 0.001)
        return layers.MixtureOfExperts(
            self.expert(config, initializer),
            config.size("num_local_experts", config.get("num_experts")),
            top_k,
            router="renormalized" if is_renormalized else "probability",
            balance_loss=weight if config.flag("output_router_logits") else 0.0,
            **options,
        )

    def expert(self, config, initializer):
        """Return the settings of each expert."""
        width, activation = config.size(self.width_option), self.activation(config)
        return layers.GatedFeedForward(width, activation, kernel_initializer=initializer)

    def feed_forward_of(self, config):
        return lambda initializer, index: self.mixture(config, initializer)

    def copy_feed_forward(self, checkpoint, layer, prefix):
        if not isinstance(layer, layers.MixtureOfExperts):
            return super().copy_feed_forward(checkpoint, layer, prefix)
        kernels = [getattr(layer, name) for name in _KERNELS]
        joined = f"{prefix}mlp.experts.gate_up_proj", f"{prefix}mlp.experts.down_proj"
        is_joined = checkpoint.has(joined[0])
        router = f"{prefix}{'mlp.gate' if is_joined else self.router}.weight"
        copy(checkpoint, layer.router_kernel, router, transpose=True)
        if is_joined:
            count, width, hidden = kernels[0].shape
            inner = Fold(kernels[:2], (count, 2 * hidden, width), (0, 2, 1))
            checkpoint.transfer(joined[0], inner)
            checkpoint.transfer(joined[1], Fold(kernels[2:], (count, width, hidden), (0, 2, 1)))
            return None
        for kernel, name in zip(kernels, self.experts, strict=True):
            names = [f"{prefix}{name.format(index)}.weight" for index in range(kernel.shape[0])]
            checkpoint.transfer_each(names, kernel)
        return None

    def activation_of(self, model):
        return expert_layers(model)[0].expert.activation

    def language_options(self, model):
        options, layer = super().language_options(model), expert_layers(model)[0]
        if layer.balance_loss:
            loss = {"output_router_logits": True, "router_aux_loss_coef": layer.balance_loss}
            options |= loss
        return {
            self.count_option: layer.num_experts,
            "num_experts_per_tok": layer.top_k,
            self.width_option: layer.expert.intermediate_dim,
            **options,
        }


def expert_layers(model):
    """Return the experts of the blocks that have some."""
    parts = [read_part(block, "feed_forward") for block in read_part(model, "depth.blocks")]
    return [part for part in parts if isinstance(part, layers.MixtureOfExperts)]


class Mixtral(ExpertDecoder):
    """Mixtral: Mistral with experts."""

    name = "Mixtral"
    epsilon = 1e-5
    theta = 1e6
    router = "block_sparse_moe.gate"
    experts = tuple(f"block_sparse_moe.experts.{{}}.{name}" for name in ("w1", "w3", "w2"))
    count_option, width_option = "num_local_experts", "intermediate_size"
    top_k = 2

    def choices(self, config):
        window = config.optional(config.size, "sliding_window", None)
        pattern = window_pattern(lambda index: window)
        return {**super().choices(config), "pattern": pattern}

    def more_options(self, model):
        return {"sliding_window": model_windows(model)[0]}


class QwenExperts(ExpertDecoder):
    """The parts that Qwen 2 and 3 with experts share: some layers have none."""

    def is_renormalized(self, config):
        return config.flag("norm_topk_prob")

    def feed_forward_of(self, config):
        plain = super(ExpertDecoder, self).feed_forward_of(config)
        step = config.size("decoder_sparse_step", 1)
        without = config.integers("mlp_only_layers", [])

        def feed_forward(initializer, index):
            if index in without or (index + 1) % step:
                return plain(initializer, index)
            return self.mixture(config, initializer)

        return feed_forward

    def more_options(self, model):
        parts, first = [block.feed_forward for block in model.depth.blocks], expert_layers(model)[0]
        plain = [i for i, x in enumerate(parts) if not isinstance(x, layers.MixtureOfExperts)]
        width = parts[plain[0]].intermediate_dim if plain else first.expert.intermediate_dim
        return {
            "decoder_sparse_step": 1,
            "mlp_only_layers": plain,
            "intermediate_size": width,
            "norm_topk_prob": first.router == "renormalized",
            "use_sliding_window": any(model_windows(model)),
        }


class Qwen2Experts(QwenExperts):
    """Qwen 2 with experts, one of which is for all tokens, times a gate."""

    name = "Qwen2Moe"
    top_k = 4

    def fits(self, model):
        return any(layer.use_shared_gate for layer in expert_layers(model))

    def choices(self, config):
        has_window = config.flag("use_sliding_window")
        first_without = config.number("max_window_layers", 28) if has_window else 0
        types = layer_types(config, lambda index: index % 2 == 0 and index < first_without)
        window = windows(config, types, is_used=has_window)
        return {**super().choices(config), "pattern": window_pattern(window)}

    def biases(self, config):
        return ("query", "key", "value") if config.flag("qkv_bias", True) else ()

    def mixture(self, config, initializer):
        width, activation = config.size("shared_expert_intermediate_size"), self.activation(config)
        shared = layers.GatedFeedForward(width, activation, kernel_initializer=initializer)
        return super().mixture(config, initializer, shared=shared, use_shared_gate=True)

    def copy_feed_forward(self, checkpoint, layer, prefix):
        super().copy_feed_forward(checkpoint, layer, prefix)
        if isinstance(layer, layers.MixtureOfExperts):
            names = {
                k: x.replace("mlp.", "mlp.shared_expert.") for k, x in self.feed_forward.items()
            }
            copy_table(checkpoint, layer.shared, names, prefix)
            gate = f"{prefix}mlp.shared_expert_gate.weight"
            copy(checkpoint, layer.shared_gate, gate, transpose=True)

    def more_options(self, model):
        return {
            **super().more_options(model),
            **window_options(model),
            "qkv_bias": read_part(model, f"{FIRST}.attention.use_bias"),
            "shared_expert_intermediate_size": expert_layers(model)[0].shared.intermediate_dim,
        }


class Qwen3Experts(QwenExperts):
    """Qwen 3 with experts."""

    name, answers_prefix = "Qwen3Moe", "transformer."
    top_k = 8

    def fits(self, model):
        has_qk_norm = read_part(model, f"{FIRST}.attention").qk_norm is not None
        return super().fits(model) and has_qk_norm

    def choices(self, config):
        has_window = config.flag("use_sliding_window")
        window = config.optional(config.size, "sliding_window", 4096) if has_window else None
        pattern = window_pattern(lambda index: window)
        return {**super().choices(config), "pattern": pattern, "has_qk_norm": True}

    def biases(self, config):
        return all_or_no_biases(config)

    def more_options(self, model):
        return {
            **super().more_options(model),
            "attention_bias": read_part(model, f"{FIRST}.attention.use_bias"),
            "sliding_window": model_windows(model)[0],
        }


class GptOss(ExpertDecoder):
    """gpt-oss, in floats or in MXFP4; written in floats."""

    name = "GptOss"
    head_names = {head: RotaryDecoder.head_names[head] for head in (CLASSES, TAGS)}
    epsilon = 1e-5
    theta = 150000.0
    count_option, width_option = "num_local_experts", "intermediate_size"
    top_k = 4

    def fits(self, model):
        return any(isinstance(x.expert, ClippedGatedFeedForward) for x in expert_layers(model))

    def choices(self, config):
        types = layer_types(config, lambda index: index % 2 == 0)
        return {
            "position": lambda index: read_rotary(config, theta=self.theta),
            "pattern": window_pattern(windows(config, types, 128)),
            "key_dim": config.size("head_dim", 64),
            "sinks": True,
        }

    def biases(self, config):
        has_biases = config.flag("attention_bias", True)
        return ("query", "key", "value", "output") if has_biases else ()

    def mixture(self, config, initializer):
        return super().mixture(config, initializer, use_router_bias=True)

    def expert(self, config, initializer):
        alpha = config.number("swiglu_alpha", 1.702)
        return ClippedGatedFeedForward(
            config.size("intermediate_size"),
            gelu_sigmoid,  # which has this alpha
            use_bias=True,
            limit=config.number("swiglu_limit", 7.0),
            alpha=None if alpha == 1.702 else alpha,
            kernel_initializer=initializer,
        )

    def arguments(self, config):
        if not config.options("rope_parameters") and not config.options("rope_scaling"):
            config.refuse("A gpt-oss needs the option 'rope_parameters'.")
        return super().arguments(config)

    def copy_attention(self, checkpoint, attention, prefix):
        super().copy_attention(checkpoint, attention, prefix)
        copy(checkpoint, attention.sink_logits, f"{prefix}sinks")

    def copy_feed_forward(self, checkpoint, layer, prefix):
        router, experts = f"{prefix}mlp.router", f"{prefix}mlp.experts."
        copy(checkpoint, layer.router_kernel, f"{router}.weight", transpose=True)
        copy(checkpoint, layer.router_bias, f"{router}.bias")
        *kernels, output = (getattr(layer, name) for name in _KERNELS)
        *biases, output_bias = layer.biases
        for name in ("gate_up_proj", "down_proj"):
            if checkpoint.has(f"{experts}{name}_blocks"):
                _unpack(checkpoint, experts + name)
        # Columns of the gate and of the other layer alternate.
        for name, pair in (("gate_up_proj", kernels), ("gate_up_proj_bias", biases)):
            shape = tuple(pair[0].shape)
            joined = Fold(pair, (*shape[:-1], 2 * shape[-1]), view=(*shape, 2))
            checkpoint.transfer(experts + name, joined)
        copy(checkpoint, output, f"{experts}down_proj")
        copy(checkpoint, output_bias, f"{experts}down_proj_bias")

    def activation_of(self, model):
        return read_part(expert_layers(model)[0], "expert.activation")

    def more_options(self, model):
        expert = expert_layers(model)[0].expert
        return {
            **window_options(model, 128),
            "hidden_act": "silu",  # which transformers does not read
            "swiglu_alpha": 1.702 if expert.alpha is None else expert.alpha,
            "swiglu_limit": expert.limit,
            "attention_bias": read_part(model, f"{FIRST}.attention.use_bias"),
        }


def _unpack(checkpoint, name):
    """Put the kernels of experts (E, in, out) in the place of their blocks of MXFP4."""
    blocks, scales = f"{name}_blocks", f"{name}_scales"
    count, outputs, groups, size = checkpoint.shape(blocks)
    if checkpoint.shape(scales) != (count, outputs, groups):
        checkpoint.refuse(f"The tensor {scales!r} must have a number for each of {blocks!r}.")
    shape = count, 2 * groups * size, outputs
    checkpoint.derive(name, (blocks, scales), unpack_mxfp4, shape)


def unpack_mxfp4(blocks, scales):
    """Return the numbers of blocks (E, out, groups, 16) as kernels (E, in, out), float32.

        v = FOUR_BITS[half of a byte] 2^(scale - 127)

    A byte holds two numbers, the first one in its low four bits; a group has one scale.
    """
    blocks = blocks.astype("uint8")
    pairs = np.stack([blocks & 15, blocks >> 4], axis=-1)
    numbers = np.ldexp(_FOUR_BITS[pairs], scales.astype("int32")[..., None, None] - 127)
    rows = numbers.reshape(*blocks.shape[:2], math.prod(numbers.shape[2:]))
    return np.swapaxes(rows, 1, 2)
