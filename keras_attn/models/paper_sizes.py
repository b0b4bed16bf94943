"""Presets: the sizes of the papers, by name."""

import inspect

from keras_attn.hints import check_keywords
from keras_attn.models.papers.adaptive_span_transformer import adaptive_span_transformer
from keras_attn.models.papers.bert import bert
from keras_attn.models.papers.big_bird import big_bird
from keras_attn.models.papers.chronos import chronos_t5
from keras_attn.models.papers.chronos_bolt import chronos_bolt
from keras_attn.models.papers.compressive_transformer import compressive_transformer
from keras_attn.models.papers.decision_transformer import decision_transformer
from keras_attn.models.papers.deep_char_transformer import deep_char_transformer
from keras_attn.models.papers.gemma import gemma
from keras_attn.models.papers.gpt import gpt
from keras_attn.models.papers.gpt_oss import gpt_oss
from keras_attn.models.papers.gtrxl import gtrxl
from keras_attn.models.papers.image_transformer import (
    image_transformer,
    super_resolution_transformer,
)
from keras_attn.models.papers.llama import llama
from keras_attn.models.papers.longformer import longformer
from keras_attn.models.papers.mistral import mistral
from keras_attn.models.papers.mixtral import mixtral
from keras_attn.models.papers.modern_bert import modern_bert
from keras_attn.models.papers.perceiver import perceiver
from keras_attn.models.papers.reformer import reformer
from keras_attn.models.papers.sparse_transformer import sparse_transformer
from keras_attn.models.papers.switch_transformer import switch_transformer
from keras_attn.models.papers.t5 import t5
from keras_attn.models.papers.transformer import transformer
from keras_attn.models.papers.transformer_xl import transformer_xl
from keras_attn.models.papers.universal_transformer import universal_transformer
from keras_attn.models.papers.vit import vit
from keras_attn.preset_sizes import SIZES, Deferred, check_preset

_BUILDERS = {
    build.__name__: build
    for build in (
        adaptive_span_transformer,
        bert,
        big_bird,
        chronos_bolt,
        chronos_t5,
        compressive_transformer,
        decision_transformer,
        deep_char_transformer,
        gemma,
        gpt,
        gpt_oss,
        gtrxl,
        image_transformer,
        llama,
        longformer,
        mistral,
        mixtral,
        modern_bert,
        perceiver,
        reformer,
        sparse_transformer,
        super_resolution_transformer,
        switch_transformer,
        t5,
        transformer,
        transformer_xl,
        universal_transformer,
        vit,
    )
}


def _made(sizes):
    return {name: x.make() if isinstance(x, Deferred) else x for name, x in sizes.items()}


PRESETS = {name: (_BUILDERS[build], _made(sizes)) for name, (build, sizes) in SIZES.items()}


def presets():
    """Return the names of all presets, for `create`, a sorted list of str.

    Example:
        >>> import keras_attn
        >>> [name for name in keras_attn.models.presets() if "reformer" in name]
        ['reformer_enwik8', 'reformer_imagenet64']
    """
    return sorted(PRESETS)


def create(name, /, **overrides):
    """Build a model of a paper's sizes, with freshly initialised weights.

    Args:
        name: one of `keras_attn.models.presets()`.
        overrides: arguments of the builder that replace the preset's, such as `vocabulary_size`.

    Returns:
        A `keras.Model` of the builder's class, such as an `EncoderDecoder`.

    Raises:
        ValueError: if the name is unknown, or the builder has no such argument.

    Example:
        >>> import keras_attn
        >>> model = keras_attn.models.create("transformer_tiny", vocabulary_size=1000)
        >>> model.count_params()
        1453056

    Differs from the paper: see each model.

    Reference: the papers that the models cite, and [Wu et al., 2021](https://arxiv.org/abs/2105.14462),
        section 4 (tiny); scripts of the authors of [Transformer-XL](https://github.com/kimiyoung/transformer-xl),
        [adaptive spans](https://github.com/facebookresearch/adaptive-span) and the
        [Reformer](https://github.com/google/trax); Tensor2Tensor's
        [universal_transformer.py](https://github.com/tensorflow/tensor2tensor/blob/bafdc1b/tensor2tensor/models/research/universal_transformer.py)
        and [image_transformer.py](https://github.com/tensorflow/tensor2tensor/blob/bafdc1b/tensor2tensor/models/image_transformer.py).
    """
    check_preset(name=name)
    build, sizes = PRESETS[name]
    check_keywords(build.__name__, inspect.signature(build).parameters, overrides)
    return build(**{**sizes, **overrides})
