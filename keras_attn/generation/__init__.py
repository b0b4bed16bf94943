"""Decoding inside a graph: greedy, sampling and beam search, with processors of the logits."""

from keras_attn.generation.beam import Beam
from keras_attn.generation.constrained import Constrained, Forbidden, Forced, NoRepeat
from keras_attn.generation.decoding import generate
from keras_attn.generation.forecasting import forecast
from keras_attn.generation.sampled_paths import sample_paths
from keras_attn.generation.sampling import Greedy, Sample, SamplePixels
from keras_attn.generation.speculative import Speculative
from keras_attn.generation.text_tables import allow_texts
from keras_attn.generation.text_to_text import complete, stream

__all__ = [
    "Beam",
    "Constrained",
    "Forbidden",
    "Forced",
    "Greedy",
    "NoRepeat",
    "Sample",
    "SamplePixels",
    "Speculative",
    "allow_texts",
    "complete",
    "forecast",
    "generate",
    "sample_paths",
    "stream",
]
