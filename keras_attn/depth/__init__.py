"""Depth axis: how blocks are repeated."""

from keras_attn.depth.stack import Stack

__all__ = ["Stack"]
