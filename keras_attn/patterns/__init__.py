"""Pattern axis: the keys that a query may attend to."""

from keras_attn.ops.images import block_raster_order
from keras_attn.patterns.adaptive_span import AdaptiveSpan
from keras_attn.patterns.block_local_1d import BlockLocal1D
from keras_attn.patterns.block_local_2d import BlockLocal2D
from keras_attn.patterns.causal import Causal
from keras_attn.patterns.combined import Both, Either, PerHead
from keras_attn.patterns.dense import Dense
from keras_attn.patterns.dilated import Dilated
from keras_attn.patterns.fixed import Fixed
from keras_attn.patterns.global_keys import Global
from keras_attn.patterns.local import Local
from keras_attn.patterns.lsh import LSH
from keras_attn.patterns.pattern import NAMES, Pattern, get_pattern
from keras_attn.patterns.prefix import Prefix
from keras_attn.patterns.random_blocks import Random
from keras_attn.patterns.sinks import Sinks
from keras_attn.patterns.strided import Strided

NAMES |= {"dense": Dense, "causal": Causal}


def get(identifier):
    """Return the pattern for a name, a config or an object.

    Args:
        identifier: "dense" or "causal"; or a config, as
            `keras.saving.serialize_keras_object` makes it; or a `Pattern`, which is returned.

    Returns:
        A `Pattern`.

    Raises:
        ValueError: if the name is unknown, or `identifier` is no pattern.

    Example:
        >>> from keras_attn import patterns
        >>> patterns.get("causal")
        Causal()
    """
    return get_pattern(identifier)


__all__ = [
    "AdaptiveSpan",
    "BlockLocal1D",
    "BlockLocal2D",
    "Both",
    "Causal",
    "Dense",
    "Dilated",
    "Either",
    "Fixed",
    "Global",
    "LSH",
    "Local",
    "Pattern",
    "PerHead",
    "Prefix",
    "Random",
    "Sinks",
    "Strided",
    "block_raster_order",
    "get",
]
