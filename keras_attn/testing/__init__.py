"""The conformance kit: checks of any Keras attention layer, or any layer."""

from keras_attn.testing.conformance import check_attention, check_layer
from keras_attn.testing.report import Defect, Report

__all__ = ["Defect", "Report", "check_attention", "check_layer"]
