"""SavedModels for TensorFlow Serving."""

from keras_attn.export._saved_model.writing import saved_model

__all__ = ["saved_model"]
