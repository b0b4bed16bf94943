"""Models: one builder a paper, and the papers' sizes by name."""

from keras_attn.models.causal_language_model import CausalLanguageModel
from keras_attn.models.encoder_decoder import EncoderDecoder
from keras_attn.models.encoder_models import Classifier, MaskedLanguageModel
from keras_attn.models.encoder_then_decoder import EncoderThenDecoder
from keras_attn.models.forecaster import Forecaster
from keras_attn.models.image_tokens import ImageTokens
from keras_attn.models.optional_inputs import Part
from keras_attn.models.paper_sizes import create, presets
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
from keras_attn.models.papers.patch_tst import patch_tst
from keras_attn.models.papers.perceiver import perceiver
from keras_attn.models.papers.reformer import reformer
from keras_attn.models.papers.sparse_transformer import sparse_transformer
from keras_attn.models.papers.switch_transformer import switch_transformer
from keras_attn.models.papers.t5 import t5
from keras_attn.models.papers.transformer import transformer
from keras_attn.models.papers.transformer_xl import transformer_xl
from keras_attn.models.papers.universal_transformer import universal_transformer
from keras_attn.models.papers.vit import vit
from keras_attn.models.patch_forecaster import PatchForecaster
from keras_attn.models.state_models import SequenceModel, TrajectoryModel
from keras_attn.models.token_forecaster import TokenForecaster

__all__ = [
    "CausalLanguageModel",
    "Classifier",
    "EncoderDecoder",
    "EncoderThenDecoder",
    "Forecaster",
    "ImageTokens",
    "MaskedLanguageModel",
    "Part",
    "PatchForecaster",
    "SequenceModel",
    "TokenForecaster",
    "TrajectoryModel",
    "adaptive_span_transformer",
    "bert",
    "big_bird",
    "chronos_bolt",
    "chronos_t5",
    "compressive_transformer",
    "create",
    "decision_transformer",
    "deep_char_transformer",
    "gemma",
    "gpt",
    "gpt_oss",
    "gtrxl",
    "image_transformer",
    "llama",
    "longformer",
    "mistral",
    "mixtral",
    "modern_bert",
    "patch_tst",
    "perceiver",
    "presets",
    "reformer",
    "sparse_transformer",
    "super_resolution_transformer",
    "switch_transformer",
    "t5",
    "transformer",
    "transformer_xl",
    "universal_transformer",
    "vit",
]
