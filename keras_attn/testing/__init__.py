"""The conformance kit: does a layer, anyone's, do what an attention layer promises."""

from keras_attn.testing.check_attention import check_attention
from keras_attn.testing.check_layer import check_layer
from keras_attn.testing.defect import Defect
from keras_attn.testing.report import Report

__all__ = ["Defect", "Report", "check_attention", "check_layer"]
