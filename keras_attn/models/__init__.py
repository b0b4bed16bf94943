"""Models: one page per paper, and presets by name."""

from keras_attn.models.adaptive_span_transformer import adaptive_span_transformer
from keras_attn.models.bert import bert
from keras_attn.models.causal_language_model import CausalLanguageModel
from keras_attn.models.deep_char_transformer import deep_char_transformer
from keras_attn.models.encoder_decoder import EncoderDecoder
from keras_attn.models.gpt import gpt
from keras_attn.models.masked_language_model import MaskedLanguageModel
from keras_attn.models.presets import PRESETS, from_preset
from keras_attn.models.reformer import reformer
from keras_attn.models.sparse_transformer import sparse_transformer
from keras_attn.models.transformer import transformer
from keras_attn.models.transformer_xl import transformer_xl

__all__ = [
    "PRESETS",
    "CausalLanguageModel",
    "EncoderDecoder",
    "MaskedLanguageModel",
    "adaptive_span_transformer",
    "bert",
    "deep_char_transformer",
    "from_preset",
    "gpt",
    "reformer",
    "sparse_transformer",
    "transformer",
    "transformer_xl",
]
