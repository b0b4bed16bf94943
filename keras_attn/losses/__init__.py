"""Losses that a Transformer is trained with."""

from keras_attn.losses.auxiliary_losses import AuxiliaryLosses
from keras_attn.losses.contrastive_loss import ContrastiveLoss
from keras_attn.losses.distillation import Distillation
from keras_attn.losses.forecasts import DistributionLoss, Quantile
from keras_attn.losses.label_smoothed_crossentropy import LabelSmoothedCrossentropy
from keras_attn.losses.mixture_of_logistics import MixtureOfLogistics

__all__ = [
    "AuxiliaryLosses",
    "ContrastiveLoss",
    "Distillation",
    "DistributionLoss",
    "LabelSmoothedCrossentropy",
    "MixtureOfLogistics",
    "Quantile",
]
