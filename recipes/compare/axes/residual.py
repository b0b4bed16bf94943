"""Residuals: places of the norm, scales and gates."""

from keras_attn import residuals

from ..model import PLAIN, Changes


def values(options):
    """Return the values; gates have the paper's biases."""
    by_name = {
        "post_norm": "post_norm",
        "output_norm": residuals.OutputNorm(),
        "sandwich_norm": residuals.SandwichNorm(),
        "deep_norm": residuals.DeepNorm(options.num_layers),
        "re_zero": residuals.ReZero(),
        "layer_scale": residuals.LayerScale(),
        "gru": residuals.Gate("gru"),
    }
    for kind in ("input", "output", "highway", "sigmoid_tanh", "sum"):
        by_name[kind] = residuals.Gate(kind, bias=1.0)
    return {"pre_norm": PLAIN, **{name: Changes(residual=value) for name, value in by_name.items()}}
