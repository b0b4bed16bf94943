"""Callbacks for `model.fit`: resume after an interruption, average checkpoints, BLEU."""

from keras_attn.callbacks.average_checkpoints import AverageCheckpoints, average_weights
from keras_attn.callbacks.bleu import Bleu, corpus_bleu
from keras_attn.callbacks.deferred_signal import Terminated
from keras_attn.callbacks.resume import Resume, WithoutTrainEnd

__all__ = [
    "AverageCheckpoints",
    "Bleu",
    "Resume",
    "Terminated",
    "WithoutTrainEnd",
    "average_weights",
    "corpus_bleu",
]
