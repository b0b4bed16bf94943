"""The conformance kit: checks of any Keras attention layer, or any layer."""

from keras_attn.testing.attention_conformance import check_attention
from keras_attn.testing.defect import Defect
from keras_attn.testing.layer_conformance import check_layer
from keras_attn.testing.report import Report

__all__ = ["Defect", "Report", "check_attention", "check_layer"]
