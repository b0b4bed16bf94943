"""Models: one page per paper, and presets by name."""

from keras_attn.models.adaptive_span_transformer import adaptive_span_transformer
from keras_attn.models.bert import bert
from keras_attn.models.causal_language_model import CausalLanguageModel
from keras_attn.models.deep_char_transformer import deep_char_transformer
from keras_attn.models.encoder_decoder import EncoderDecoder
from keras_attn.models.gpt import gpt
from keras_attn.models.gtrxl import gtrxl
from keras_attn.models.image_tokens import ImageTokens
from keras_attn.models.image_transformer import image_transformer
from keras_attn.models.masked_language_model import MaskedLanguageModel
from keras_attn.models.presets import PRESETS, create
from keras_attn.models.reformer import reformer
from keras_attn.models.sequence_model import SequenceModel
from keras_attn.models.sparse_transformer import sparse_transformer
from keras_attn.models.super_resolution_transformer import super_resolution_transformer
from keras_attn.models.transformer import transformer
from keras_attn.models.transformer_xl import transformer_xl
from keras_attn.models.universal_transformer import universal_transformer

__all__ = [
    "PRESETS",
    "CausalLanguageModel",
    "EncoderDecoder",
    "ImageTokens",
    "MaskedLanguageModel",
    "SequenceModel",
    "adaptive_span_transformer",
    "bert",
    "deep_char_transformer",
    "create",
    "gpt",
    "gtrxl",
    "image_transformer",
    "reformer",
    "sparse_transformer",
    "super_resolution_transformer",
    "transformer",
    "transformer_xl",
    "universal_transformer",
]
