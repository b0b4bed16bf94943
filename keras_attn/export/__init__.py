"""Models as files that other programs run. TensorFlow backend only."""

from keras_attn.export.ctranslate2 import ctranslate2
from keras_attn.export.id_translator import IdTranslator
from keras_attn.export.id_writer import TokenGenerator
from keras_attn.export.image_enlarger import ImageEnlarger
from keras_attn.export.image_generator import ImageGenerator
from keras_attn.export.inspection import Inspection, inspect
from keras_attn.export.onnx import onnx
from keras_attn.export.saved_model import saved_model
from keras_attn.export.segment_steps import SegmentSteps
from keras_attn.export.servable_ops import unservable_ops
from keras_attn.export.token_encoder import TokenEncoder
from keras_attn.export.translator import Translator
from keras_attn.export.writer import TextGenerator

__all__ = [
    "IdTranslator",
    "TokenGenerator",
    "ImageEnlarger",
    "ImageGenerator",
    "Inspection",
    "SegmentSteps",
    "TokenEncoder",
    "Translator",
    "TextGenerator",
    "ctranslate2",
    "inspect",
    "onnx",
    "saved_model",
    "unservable_ops",
]
