"""Feed-forward networks of about as many multiplications for each token."""

from keras_attn import layers

from ..model import PLAIN, Changes


def values(options):
    """Return the values."""
    width = options.intermediate_dim
    # As many weights as the plain network, and experts of which two are as wide as it.
    gated, expert = 2 * width // 3, layers.FeedForward(max(1, width // 2))
    layers_by_name = {
        "gelu": layers.FeedForward(width, "gelu"),
        "swiglu": layers.GatedFeedForward(gated),
        "geglu": layers.GatedFeedForward(gated, "gelu"),
        "experts": layers.MixtureOfExperts(expert, num_experts=8),
        "convolution": layers.SeparableConvTransition(width, causal=True),
    }
    return {
        "relu": PLAIN,
        **{n: Changes(feed_forward=layer) for n, layer in layers_by_name.items()},
    }
