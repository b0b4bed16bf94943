"""Score axis: the logit of a query and a key."""

from keras_attn import registry
from keras_attn.scores.additive import Additive
from keras_attn.scores.bias import ALiBi, Bias, T5Bias
from keras_attn.scores.cosine import Cosine
from keras_attn.scores.disentangled import Disentangled
from keras_attn.scores.dot_product import DotProduct
from keras_attn.scores.favor import FAVOR
from keras_attn.scores.kernel import Kernel, KernelScore
from keras_attn.scores.learned_relative import LearnedRelative
from keras_attn.scores.relative import Relative
from keras_attn.scores.score import Score, ScoreLayer
from keras_attn.scores.shared_qk import SharedQK
from keras_attn.scores.soft_cap import SoftCap
from keras_attn.scores.sum import Sum

NAMES = {
    "scaled_dot": DotProduct,
    "dot": lambda: DotProduct(scaled=False),
    "additive": Additive,
    "relative": Relative,
    "shared_qk": SharedQK,
}


def get(identifier, **layer_arguments):
    """Return the score for a name, a config or an object.

    Args:
        identifier: "scaled_dot", "dot", "additive", "relative" or "shared_qk"; or a config, as
            `keras.saving.serialize_keras_object` makes it; or a `Score`, which is returned.
        layer_arguments: arguments of a Keras layer that is made from a name, such as `dtype`.

    Returns:
        A `Score`.

    Raises:
        ValueError: if the name is unknown, or `identifier` is no score, or a bias alone.

    Example:
        >>> from keras_attn import scores
        >>> scores.get("dot")
        DotProduct(scaled=False)
    """
    score = registry.resolve(identifier, NAMES, "score", base=Score, **layer_arguments)
    if isinstance(score, Bias):
        raise ValueError(
            f"A bias is added to a score: write DotProduct() + {score!r}. "
            f"Received: score={score!r}."
        )
    return score


__all__ = [
    "ALiBi",
    "Additive",
    "Bias",
    "Cosine",
    "Disentangled",
    "DotProduct",
    "FAVOR",
    "Kernel",
    "KernelScore",
    "LearnedRelative",
    "Relative",
    "Score",
    "ScoreLayer",
    "SharedQK",
    "SoftCap",
    "Sum",
    "T5Bias",
    "get",
]
