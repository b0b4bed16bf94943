"""ONNX files."""

from keras_attn.export._onnx.conversion import onnx

__all__ = ["onnx"]
