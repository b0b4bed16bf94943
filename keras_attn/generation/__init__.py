"""Decoding inside a graph: greedy, sampling and beam search."""

from keras_attn.generation.beam import Beam
from keras_attn.generation.decoding import generate
from keras_attn.generation.sampling import Greedy, Sample, SamplePixels

__all__ = ["Beam", "Greedy", "Sample", "SamplePixels", "generate"]
