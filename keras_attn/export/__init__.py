"""Export models as files that other programs run. TensorFlow backend only.

An export runs without this package. `.keras` files and exports of version 0.2.0 or later load in
every later version, with equal outputs.
"""

try:
    import tensorflow  # noqa: F401
except ImportError as error:
    raise ImportError("Exports need TensorFlow: pip install 'keras_attn[export]'.") from error

from keras_attn.export._ctranslate2.conversion import ctranslate2
from keras_attn.export._litert.conversion import litert
from keras_attn.export._litert.inspection import LiteRTInspection
from keras_attn.export._onnx.conversion import onnx
from keras_attn.export._saved_model.writing import saved_model
from keras_attn.export.inspection import Inspection, inspect
from keras_attn.export.measurement import Measurement, measure
from keras_attn.export.servable_ops import unservable_ops
from keras_attn.export.signatures.compiled_decoding import Buckets
from keras_attn.export.signatures.encoders import (
    ClassPredictor,
    SentenceEmbedder,
    TextClassifier,
    TextTagger,
    TokenEncoder,
)
from keras_attn.export.signatures.images import ImageEnlarger, ImageGenerator
from keras_attn.export.signatures.question_answerer import QuestionAnswerer
from keras_attn.export.signatures.series import SeriesForecaster, SeriesModel
from keras_attn.export.signatures.steps import SegmentSteps, TextStream, TokenStream
from keras_attn.export.signatures.text_generator import TextGenerator, TokenGenerator
from keras_attn.export.signatures.text_model import TextModel
from keras_attn.export.signatures.translator import IdTranslator, Translator

__all__ = [
    "Buckets",
    "ClassPredictor",
    "IdTranslator",
    "ImageEnlarger",
    "ImageGenerator",
    "Inspection",
    "LiteRTInspection",
    "Measurement",
    "QuestionAnswerer",
    "SegmentSteps",
    "SentenceEmbedder",
    "SeriesForecaster",
    "SeriesModel",
    "TextClassifier",
    "TextGenerator",
    "TextModel",
    "TextStream",
    "TextTagger",
    "TokenEncoder",
    "TokenGenerator",
    "TokenStream",
    "Translator",
    "ctranslate2",
    "inspect",
    "litert",
    "measure",
    "onnx",
    "saved_model",
    "unservable_ops",
]
