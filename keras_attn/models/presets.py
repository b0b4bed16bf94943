"""Sizes from the papers, by name."""

from keras_attn.models.bert import bert
from keras_attn.models.gpt import gpt
from keras_attn.models.gtrxl import gtrxl
from keras_attn.models.image_transformer import image_transformer
from keras_attn.models.super_resolution_transformer import super_resolution_transformer
from keras_attn.models.transformer import transformer
from keras_attn.models.universal_transformer import universal_transformer
from keras_attn.patterns import BlockLocal2D


def _sizes(vocabulary_size, num_layers, num_heads, hidden_dim, intermediate_dim, dropout, **more):
    return {
        "vocabulary_size": vocabulary_size,
        "num_layers": num_layers,
        "num_heads": num_heads,
        "hidden_dim": hidden_dim,
        "intermediate_dim": intermediate_dim,
        "dropout": dropout,
        **more,
    }


_GTRXL = {
    "state_shape": 256,
    "num_layers": 12,
    "num_heads": 8,
    "hidden_dim": 512,
    "intermediate_dim": 1024,
    "memory_length": 512,
}

# Vaswani et al. 2017, table 3; Wu et al. 2021 (tiny); Devlin et al. 2018; Radford et al. 2019;
# Dehghani et al. 2019 in Tensor2Tensor's sizes; Parisotto et al. 2019, with states of 256 numbers;
# Parmar et al. 2018 in Tensor2Tensor's sizes.
PRESETS = {
    "transformer_tiny": (transformer, _sizes(8000, 4, 4, 128, 256, 0.3)),
    "transformer_base": (transformer, _sizes(37000, 6, 8, 512, 2048, 0.1)),
    "transformer_big": (transformer, _sizes(37000, 6, 16, 1024, 4096, 0.3)),
    "bert_base": (bert, _sizes(30522, 12, 12, 768, 3072, 0.1, max_length=512)),
    "bert_large": (bert, _sizes(30522, 24, 16, 1024, 4096, 0.1, max_length=512)),
    "gpt2_small": (gpt, _sizes(50257, 12, 12, 768, 3072, 0.1, max_length=1024)),
    "gtrxl": (gtrxl, _GTRXL),
    "image_transformer_cifar10": (image_transformer, _sizes(258, 12, 4, 512, 2048, 0.3)),
    "image_transformer_imagenet32": (image_transformer, _sizes(258, 12, 4, 512, 2048, 0.1)),
    "image_transformer_cifar10_logistics": (
        image_transformer,
        _sizes(258, 12, 8, 256, 512, 0.1, head_dim=64, num_mixtures=10),
    ),
    "image_transformer_2d": (
        image_transformer,
        _sizes(258, 8, 16, 1024, 2048, 0.3, pattern=BlockLocal2D((32, 96), (8, 16), (0, 32))),
    ),
    "super_resolution_transformer": (
        super_resolution_transformer,
        _sizes(258, 8, 8, 512, 2048, 0.1, num_encoder_layers=4),
    ),
    "universal_transformer_tiny": (universal_transformer, _sizes(8000, 8, 4, 128, 512, 0.1)),
    "universal_transformer_small": (universal_transformer, _sizes(37000, 6, 8, 512, 2048, 0.1)),
    "universal_transformer_base": (universal_transformer, _sizes(37000, 6, 16, 1024, 4096, 0.3)),
    "universal_transformer_big": (universal_transformer, _sizes(37000, 6, 16, 2048, 8192, 0.3)),
}


def from_preset(name, /, **overrides):
    """A model with a paper's sizes and random weights.

    Args:
        name: one of `keras_attn.models.PRESETS`.
        **overrides: arguments of the model that replace the preset's (`vocabulary_size`, ...).

    Returns:
        A functional `keras.Model`.

    Raises:
        ValueError: if the name is unknown.

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.from_preset("transformer_tiny", vocabulary_size=1000)
        >>> model.count_params()
        1453056

    Differs from the paper: see each model's page.

    Reference: sizes from [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), table 3;
        [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3;
        [Radford et al., 2019](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf),
        table 2; [Wu et al., 2021](https://arxiv.org/abs/2105.14462), section 4 (tiny);
        [universal_transformer.py](https://github.com/tensorflow/tensor2tensor/blob/bafdc1b/tensor2tensor/models/research/universal_transformer.py)
        and [image_transformer.py](https://github.com/tensorflow/tensor2tensor/blob/bafdc1b/tensor2tensor/models/image_transformer.py)
        of Tensor2Tensor; [Parisotto et al., 2019](https://arxiv.org/abs/1910.06764), table 1, whose
        numbers of parameters have one solution.
    """
    if name not in PRESETS:
        raise ValueError(
            f"Unknown preset. Received: name={name!r}. Known presets: {', '.join(PRESETS)}."
        )
    build, sizes = PRESETS[name]
    return build(**{**sizes, **overrides})
