"""Models: one builder a paper, and the papers' sizes by name."""

from keras_attn.models.catalog import create, presets
from keras_attn.models.causal_language_model import CausalLanguageModel
from keras_attn.models.encoder_decoder import EncoderDecoder
from keras_attn.models.image_tokens import ImageTokens
from keras_attn.models.masked_language_model import MaskedLanguageModel
from keras_attn.models.papers.adaptive_span_transformer import adaptive_span_transformer
from keras_attn.models.papers.bert import bert
from keras_attn.models.papers.deep_char_transformer import deep_char_transformer
from keras_attn.models.papers.gpt import gpt
from keras_attn.models.papers.gtrxl import gtrxl
from keras_attn.models.papers.image_transformer import image_transformer
from keras_attn.models.papers.reformer import reformer
from keras_attn.models.papers.sparse_transformer import sparse_transformer
from keras_attn.models.papers.super_resolution_transformer import super_resolution_transformer
from keras_attn.models.papers.transformer import transformer
from keras_attn.models.papers.transformer_xl import transformer_xl
from keras_attn.models.papers.universal_transformer import universal_transformer
from keras_attn.models.sequence_model import SequenceModel

__all__ = [
    "CausalLanguageModel",
    "EncoderDecoder",
    "ImageTokens",
    "MaskedLanguageModel",
    "SequenceModel",
    "adaptive_span_transformer",
    "bert",
    "create",
    "deep_char_transformer",
    "gpt",
    "gtrxl",
    "image_transformer",
    "presets",
    "reformer",
    "sparse_transformer",
    "super_resolution_transformer",
    "transformer",
    "transformer_xl",
    "universal_transformer",
]
