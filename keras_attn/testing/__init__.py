"""The conformance kit: checks of any Keras attention layer, or any layer."""

from keras_attn.testing.conformance import (
    Defect,
    Report,
    check_attention,
    check_layer,
    check_series,
)

__all__ = ["Defect", "Report", "check_attention", "check_layer", "check_series"]
