"""Depth axis: the repetition of blocks."""

from keras_attn.depth.act import ACT
from keras_attn.depth.act_cell import ACTCell
from keras_attn.depth.act_rnn import ACTRNN
from keras_attn.depth.halting import Halting
from keras_attn.depth.latents import Latents
from keras_attn.depth.recurrent import Recurrent
from keras_attn.depth.reversible import Reversible
from keras_attn.depth.stack import Stack

__all__ = ["ACT", "ACTCell", "ACTRNN", "Halting", "Latents", "Recurrent", "Reversible", "Stack"]
