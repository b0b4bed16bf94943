"""Sizes of the papers by name, readable without Keras.

`models.paper_sizes` builds models of them. A preset is the name of a builder and its arguments.
"""

import importlib

from keras_attn.hints import all_close

_SIZES = "vocabulary_size", "num_layers", "num_heads", "hidden_dim", "intermediate_dim", "dropout"


class Deferred:
    """An object of keras_attn that is made when a model is built.

    Args:
        package: str. Part of keras_attn that has its class.
        name: str. The class.
        *arguments, **keywords: of the class.
    """

    def __init__(self, package, name, *arguments, **keywords):
        self.package, self.name, self.arguments, self.keywords = package, name, arguments, keywords

    def make(self):
        """Return the object."""
        package = importlib.import_module(f"keras_attn.{self.package}")
        return getattr(package, self.name)(*self.arguments, **self.keywords)


def _preset(builder, sizes=(), **more):
    named = {k: v for k, v in zip(_SIZES, sizes) if v is not None}  # None for no vocabulary
    return builder, {**named, **more}


# Bytes and words are the papers', and one more token, 0, for padding. Where a paper evaluates with
# another memory than it trains with, this is that of training.
_WIKITEXT103 = [20000, 40000, 200000]
_GPT_OSS = {
    "num_key_value_heads": 8,
    "key_dim": 64,
    "scaling": Deferred("positions", "YaRN", 32, 4096, truncate=False),
}
_LLAMA3 = {"max_wavelength": 500000, "epsilon": 1e-5}
_T5_1_1 = {"key_dim": 64, "gated": True, "tied": False}
_REFORMER = {"attention_dropout": 0.2, "across_buckets": True, "key_dim": 64}
SIZES = {
    # Vaswani et al. 2017, table 3; Wu et al. 2021 (tiny).
    "transformer_tiny": _preset("transformer", (8000, 4, 4, 128, 256, 0.3)),
    "transformer_base": _preset("transformer", (37000, 6, 8, 512, 2048, 0.1)),
    "transformer_big": _preset("transformer", (37000, 6, 16, 1024, 4096, 0.3)),
    # Devlin et al. 2018, section 3; Radford et al. 2019, table 2.
    "bert_base": _preset("bert", (30522, 12, 12, 768, 3072, 0.1), max_length=512),
    "bert_large": _preset("bert", (30522, 24, 16, 1024, 4096, 0.1), max_length=512),
    "gpt2_small": _preset("gpt", (50257, 12, 12, 768, 3072, 0.1), max_length=1024),
    # Al-Rfou et al. 2018: T12 and T64.
    "deep_char_12": _preset("deep_char_transformer", (257, 12, 8, 512, 2048, 0.2), max_length=512),
    "deep_char_64": _preset("deep_char_transformer", (257, 64, 8, 512, 2048, 0.55), max_length=512),
    # Dai et al. 2019, by the scripts `pytorch/*.sh`, which have none of the model with 18 layers.
    "transformer_xl_enwik8_12": _preset(
        "transformer_xl", (206, 12, 8, 512, 2048, 0.1), memory_length=512
    ),
    "transformer_xl_enwik8_24": _preset(
        "transformer_xl", (206, 24, 8, 1024, 3072, 0.15), attention_dropout=0.15, memory_length=768
    ),
    "transformer_xl_wikitext103_base": _preset(
        "transformer_xl", (267736, 16, 10, 410, 2100, 0.1), memory_length=150, cutoffs=_WIKITEXT103
    ),
    "transformer_xl_wikitext103_large": _preset(
        "transformer_xl",
        (267736, 18, 16, 1024, 4096, 0.2),
        attention_dropout=0.2,
        memory_length=384,
        div_val=4,
        cutoffs=_WIKITEXT103,
    ),
    # Rae et al. 2019, section 5.2, in the sizes of Dai et al., to which it adds the convolutions.
    "compressive_transformer_enwik8": _preset(
        "compressive_transformer",
        (206, 24, 8, 1024, 3072, 0.15),
        attention_dropout=0.15,
        memory_length=768,
        compressed_length=1152,
    ),
    # Sukhbaatar et al. 2019, by the authors' `experiments`.
    "adaptive_span_enwik8_small": _preset(
        "adaptive_span_transformer", (206, 12, 8, 512, 2048, 0.3), max_span=8192
    ),
    "adaptive_span_enwik8_large": _preset(
        "adaptive_span_transformer", (206, 24, 8, 768, 4096, 0.4), max_span=8192
    ),
    # Child et al. 2019, section 7. Small images have queries and keys of half the size, a hidden
    # layer of half the width, and, as in the authors' code, a row as stride.
    "sparse_transformer_cifar10": _preset(
        "sparse_transformer", (257, 128, 2, 256, 512, 0.25), image_shape=(32, 32, 3), key_dim=64
    ),
    "sparse_transformer_imagenet64": _preset(
        "sparse_transformer", (257, 48, 16, 512, 2048, 0.01), image_shape=(64, 64, 3), stride=128
    ),
    "sparse_transformer_enwik8": _preset(
        "sparse_transformer", (257, 30, 8, 512, 2048, 0.4), image_shape=(96, 128, 1), summary=32
    ),
    # Kitaev et al. 2020, by `trax/supervised/configs`.
    "reformer_enwik8": _preset(
        "reformer",
        (257, 12, 8, 768, 2048, 0.2),
        axial_shape=(128, 512),
        axial_dims=(256, 512),
        attention=("local", "local", "lsh", "local"),
        chunk_length=256,
        num_buckets=512,
        local_length=128,
        activation="relu",
        **_REFORMER,
    ),
    "reformer_imagenet64": _preset(
        "reformer",
        (257, 6, 8, 1024, 4096, 0.0),
        axial_shape=(64, 64, 3),
        axial_dims=(384, 384, 256),
        chunk_length=128,
        num_buckets=192,
        **_REFORMER,
    ),
    # Dehghani et al. 2019, in Tensor2Tensor's sizes.
    "universal_transformer_tiny": _preset("universal_transformer", (8000, 8, 4, 128, 512, 0.1)),
    "universal_transformer_small": _preset("universal_transformer", (37000, 6, 8, 512, 2048, 0.1)),
    "universal_transformer_base": _preset("universal_transformer", (37000, 6, 16, 1024, 4096, 0.3)),
    "universal_transformer_big": _preset("universal_transformer", (37000, 6, 16, 2048, 8192, 0.3)),
    # With adaptive computation time, of at most twice as many steps as a transformer has layers.
    "adaptive_universal_transformer_tiny": _preset(
        "universal_transformer", (8000, 4, 4, 128, 512, 0.1), depth="act"
    ),
    "adaptive_universal_transformer_small": _preset(
        "universal_transformer", (37000, 12, 8, 512, 2048, 0.1), depth="act"
    ),
    "adaptive_universal_transformer_tall": _preset(
        "universal_transformer", (37000, 24, 8, 512, 2048, 0.1), depth="act"
    ),
    "adaptive_universal_transformer_base": _preset(
        "universal_transformer", (37000, 12, 16, 1024, 4096, 0.3), depth="act"
    ),
    # Parisotto et al. 2019, table 1, whose numbers of parameters have one solution, with states of
    # 256 numbers.
    "gtrxl": _preset(
        "gtrxl",
        state_shape=256,
        num_layers=12,
        num_heads=8,
        hidden_dim=512,
        intermediate_dim=1024,
        memory_length=512,
    ),
    # Parmar et al. 2018, in Tensor2Tensor's sizes.
    "image_transformer_cifar10": _preset("image_transformer", (258, 12, 4, 512, 2048, 0.3)),
    "image_transformer_imagenet32": _preset("image_transformer", (258, 12, 4, 512, 2048, 0.1)),
    "image_transformer_cifar10_logistics": _preset(
        "image_transformer", (258, 12, 8, 256, 512, 0.1), key_dim=64, num_mixtures=10
    ),
    "image_transformer_2d": _preset(
        "image_transformer",
        (258, 8, 16, 1024, 2048, 0.3),
        pattern=Deferred(
            "patterns", "BlockLocal2D", image_shape=(32, 96), query_shape=(8, 16), flange=(0, 32)
        ),
    ),
    "super_resolution_transformer": _preset(
        "super_resolution_transformer", (258, 8, 8, 512, 2048, 0.1), num_encoder_layers=4
    ),
    # Raffel et al. 2020, section 3.7; Tay et al. 2021 (tiny).
    "t5_efficient_tiny": _preset("t5", (32128, 4, 4, 256, 1024, 0.1)),
    "t5_small": _preset("t5", (32128, 6, 8, 512, 2048, 0.1)),
    "t5_base": _preset("t5", (32128, 12, 12, 768, 3072, 0.1)),
    "t5_11b": _preset("t5", (32128, 24, 128, 1024, 65536, 0.1), key_dim=128),
    # T5 1.1, by the authors' released checkpoints.
    "t5_v1_1_small": _preset("t5", (32128, 8, 6, 512, 1024, 0.1), **_T5_1_1),
    "t5_v1_1_base": _preset("t5", (32128, 12, 12, 768, 2048, 0.1), **_T5_1_1),
    "t5_v1_1_large": _preset("t5", (32128, 24, 16, 1024, 2816, 0.1), **_T5_1_1),
    "t5_v1_1_xl": _preset("t5", (32128, 24, 32, 2048, 5120, 0.1), **_T5_1_1),
    "t5_v1_1_xxl": _preset("t5", (32128, 24, 64, 4096, 10240, 0.1), **_T5_1_1),
    # Ansari et al. 2024, section 4, on the sizes of T5-Efficient (Tay et al. 2021).
    "chronos_t5_tiny": _preset("chronos_t5", (4096, 4, 4, 256, 1024, 0.1)),
    "chronos_t5_mini": _preset("chronos_t5", (4096, 4, 8, 384, 1536, 0.1), key_dim=64),
    "chronos_t5_small": _preset("chronos_t5", (4096, 6, 8, 512, 2048, 0.1)),
    "chronos_t5_base": _preset("chronos_t5", (4096, 12, 12, 768, 3072, 0.1)),
    "chronos_t5_large": _preset("chronos_t5", (4096, 24, 16, 1024, 4096, 0.1)),
    # The same sizes, by the authors' published checkpoints.
    "chronos_bolt_tiny": _preset("chronos_bolt", (None, 4, 4, 256, 1024, 0.1)),
    "chronos_bolt_mini": _preset("chronos_bolt", (None, 4, 8, 384, 1536, 0.1), key_dim=64),
    "chronos_bolt_small": _preset("chronos_bolt", (None, 6, 8, 512, 2048, 0.1)),
    "chronos_bolt_base": _preset("chronos_bolt", (None, 12, 12, 768, 3072, 0.1)),
    # Fedus et al. 2021, table 9; the published small one, of 8 experts, has no gates.
    "switch_base_8": _preset(
        "switch_transformer", (32128, 12, 12, 768, 3072, 0.1), num_experts=8, gated=False
    ),
    "switch_base": _preset("switch_transformer", (32128, 12, 12, 768, 2048, 0.1)),
    # Touvron et al. 2023, table 2; Llama Team 2024, table 3, and the configurations of Llama 3.2.
    "llama_7b": _preset("llama", (32000, 32, 32, 4096, 11008, 0.0)),
    "llama3_8b": _preset(
        "llama", (128256, 32, 32, 4096, 14336, 0.0), num_key_value_heads=8, **_LLAMA3
    ),
    "llama3_2_1b": _preset(
        "llama",
        (128256, 16, 32, 2048, 8192, 0.0),
        num_key_value_heads=8,
        scaling=Deferred("positions", "Llama3", 32, 8192),
        tied=True,
        **_LLAMA3,
    ),
    # Beltagy et al. 2020, section 5; Zaheer et al. 2020, appendix E.
    "longformer_base": _preset("longformer", (50265, 12, 12, 768, 3072, 0.1)),
    "big_bird_base": _preset("big_bird", (50358, 12, 12, 768, 3072, 0.1)),
    # Warner et al. 2024, table 4.
    "modern_bert_base": _preset("modern_bert", (50368, 22, 12, 768, 1152, 0.0)),
    "modern_bert_large": _preset("modern_bert", (50368, 28, 16, 1024, 2624, 0.0)),
    # Dosovitskiy et al. 2021, table 1.
    "vit_base_16": _preset(
        "vit", num_layers=12, num_heads=12, hidden_dim=768, intermediate_dim=3072
    ),
    "vit_large_16": _preset(
        "vit", num_layers=24, num_heads=16, hidden_dim=1024, intermediate_dim=4096
    ),
    # Chen et al. 2021, table 9, for OpenAI Gym's Hopper.
    "decision_transformer_hopper": _preset(
        "decision_transformer",
        state_size=11,
        action_size=3,
        num_layers=3,
        num_heads=1,
        hidden_dim=128,
        intermediate_dim=512,
    ),
    # Jaegle et al. 2022, table 1, by bytes.
    "perceiver_io_language": _preset(
        "perceiver", (262, 26, 8, 768, 1280, 0.1), num_latents=256, latent_dim=1280, key_dim=32
    ),
    # Jiang et al. 2023, table 1, and 2024, table 1.
    "mistral_7b": _preset("mistral", (32000, 32, 32, 4096, 14336, 0.0), num_key_value_heads=8),
    "mixtral_8x7b": _preset("mixtral", (32000, 32, 32, 4096, 14336, 0.0), num_key_value_heads=8),
    # OpenAI 2025, table 1.
    "gpt_oss_20b": _preset(
        "gpt_oss", (201088, 24, 64, 2880, 2880, 0.0), num_experts=32, **_GPT_OSS
    ),
    "gpt_oss_120b": _preset(
        "gpt_oss", (201088, 36, 64, 2880, 2880, 0.0), num_experts=128, **_GPT_OSS
    ),
    # Gemma Team 2024, table 1.
    "gemma2_2b": _preset(
        "gemma", (256000, 26, 8, 2304, 9216, 0.0), num_key_value_heads=4, key_dim=256
    ),
    "gemma2_9b": _preset(
        "gemma", (256000, 42, 16, 3584, 14336, 0.0), num_key_value_heads=8, key_dim=256
    ),
}


def check_preset(**values):
    """Check that each value is the name of a preset."""
    for argument, name in values.items():
        if name not in SIZES:
            close = all_close(name, sorted(SIZES)) if isinstance(name, str) else []
            hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
            raise ValueError(
                f"`{argument}` must be one of keras_attn.models.presets().{hint} "
                f"Received: {argument}={name!r}."
            )


def check_preset_length(name, length):
    """Check that a preset has a position for each of so many inputs."""
    most = SIZES[name][1].get("max_length")
    if most is not None and isinstance(length, int) and length > most:
        raise ValueError(
            f"`length` must be at most {most}, the positions of {name!r}; for more call "
            f"`explain(models.create({name!r}, max_length={length}), {length})`. "
            f"Received: length={length}."
        )
