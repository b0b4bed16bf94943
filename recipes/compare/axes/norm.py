"""Norms of pre-norm blocks, and of queries and keys."""

from keras_attn import residuals

from ..model import PLAIN, Changes


def values(options):
    """Return the values."""
    return {
        "layer_norm": PLAIN,
        **{n: Changes(residual=residuals.PreNorm(norm=n)) for n in ("rms_norm", "dyt", "none")},
        "qk_norm": Changes({"qk_norm": "rms_norm"}),
    }
