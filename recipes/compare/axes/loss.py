"""Losses that are minimised; all values are validated by the same metric."""

from keras_attn import losses

from ..model import PLAIN, Changes


def values(options):
    """Return the values."""

    def smoothed():
        return losses.LabelSmoothedCrossentropy(0.1)

    def stable():
        return losses.LabelSmoothedCrossentropy(0.0, z_loss=1e-4)

    def multi_token(model, steps):
        block = {"block": lambda target: PLAIN.block(0, options)}
        return losses.AuxiliaryLosses(model, steps, target_weight=1.0, schedule=None, **block)

    return {
        "plain": PLAIN,
        "label_smoothed": Changes(loss=smoothed),
        "z_loss": Changes(loss=stable),
        "auxiliary": Changes(wrapper=losses.AuxiliaryLosses),
        "multi_token": Changes(wrapper=multi_token),
    }
