"""Models: one page per paper, and presets by name."""

from keras_attn.models.bert import bert
from keras_attn.models.causal_language_model import CausalLanguageModel
from keras_attn.models.encoder_decoder import EncoderDecoder
from keras_attn.models.gpt import gpt
from keras_attn.models.gtrxl import gtrxl
from keras_attn.models.image_tokens import ImageTokens
from keras_attn.models.image_transformer import image_transformer
from keras_attn.models.masked_language_model import MaskedLanguageModel
from keras_attn.models.presets import PRESETS, from_preset
from keras_attn.models.sequence_model import SequenceModel
from keras_attn.models.super_resolution_transformer import super_resolution_transformer
from keras_attn.models.transformer import transformer
from keras_attn.models.universal_transformer import universal_transformer

__all__ = [
    "PRESETS",
    "CausalLanguageModel",
    "EncoderDecoder",
    "ImageTokens",
    "MaskedLanguageModel",
    "SequenceModel",
    "bert",
    "from_preset",
    "gpt",
    "gtrxl",
    "image_transformer",
    "super_resolution_transformer",
    "transformer",
    "universal_transformer",
]
