"""Decoding loops that run inside a graph."""

from keras_attn.generation.beam import Beam
from keras_attn.generation.generate import generate
from keras_attn.generation.greedy import Greedy
from keras_attn.generation.sample import Sample
from keras_attn.generation.sample_pixels import SamplePixels

__all__ = ["Beam", "Greedy", "Sample", "SamplePixels", "generate"]
