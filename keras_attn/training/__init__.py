"""What training needs beside Keras: the loss, metrics, a schedule and callbacks for `model.fit`.

Gradient clipping is an argument of every Keras optimizer, so there is none here:

>>> import keras
>>> from keras_attn.training import Adam, LabelSmoothedCrossentropy, Noam, Perplexity
>>> optimizer = Adam(
...     Noam(hidden_dim=512, warmup_steps=4000), beta_1=0.9, beta_2=0.98, epsilon=1e-9,
...     global_clipnorm=1.0)
>>> model = keras.Sequential([keras.Input((None,)), keras.layers.Embedding(7, 7)])
>>> model.compile(optimizer, LabelSmoothedCrossentropy(smoothing=0.1), metrics=[Perplexity()])

On several devices or machines, the same model and data are made in the scope of `strategy(name)`.
"""

from keras_attn.training.adam import Adam
from keras_attn.training.auxiliary_losses import AuxiliaryLosses
from keras_attn.training.average_checkpoints import AverageCheckpoints, average_weights
from keras_attn.training.bits_per_character import BitsPerCharacter
from keras_attn.training.bits_per_dim import BitsPerDim
from keras_attn.training.bleu import Bleu, corpus_bleu
from keras_attn.training.label_smoothed_crossentropy import LabelSmoothedCrossentropy
from keras_attn.training.lost_worker import lost_worker
from keras_attn.training.mixture_of_logistics import MixtureOfLogistics
from keras_attn.training.noam import Noam
from keras_attn.training.perplexity import Perplexity
from keras_attn.training.resume import Resume
from keras_attn.training.sequence_accuracy import SequenceAccuracy
from keras_attn.training.strategy import strategy
from keras_attn.training.terminated import Terminated
from keras_attn.training.token_accuracy import TokenAccuracy

__all__ = [
    "Adam",
    "AuxiliaryLosses",
    "AverageCheckpoints",
    "BitsPerCharacter",
    "BitsPerDim",
    "Bleu",
    "LabelSmoothedCrossentropy",
    "MixtureOfLogistics",
    "Noam",
    "Perplexity",
    "Resume",
    "SequenceAccuracy",
    "Terminated",
    "TokenAccuracy",
    "average_weights",
    "corpus_bleu",
    "lost_worker",
    "strategy",
]
