"""The tensors of a model under the names that a family has on disk."""

import keras
import numpy as np

from keras_attn.convert.hugging_face.weights import numbers


class StoredModel:
    """Tensors to write, taken from a model by the methods that `Checkpoint` has for reading.

    Args:
        config: the `Config` of the family that the model is of.
        prefix: str. Beginning of the names of all tensors but those of heads.
        heads: tuple of beginnings of the names of heads.

    Attributes:
        tensors: dict of names and `(shape, read)`; `read()` gives a float32 array.
    """

    def __init__(self, config, prefix="", heads=()):
        self.config = config
        self.tensors = {}
        self._prefix, self._heads = prefix, tuple(heads)

    def transfer(self, name, fold):
        """Store the variables of a `Fold` as a tensor; refuse quantized ones."""
        dtypes = [variable.dtype for variable in getattr(fold, "variables", ())]
        if not all(map(keras.backend.is_float_dtype, dtypes)):
            raise ValueError(
                "The weights must be floats: write the model before it is quantized. "
                f"Received: the tensor {name!r} of {', '.join(dtypes)}."
            )
        self._add(name, fold.shape, fold.tensor)

    def require_zero(self, variable):
        """Refuse a variable other than 0 for which checkpoints of the family have no tensor."""
        if np.any(numbers(variable)):
            raise ValueError(
                f"The weight {variable.path!r} must be 0: checkpoints of "
                f"{self.config.get('model_type')} have no such weight. "
                f"Received: a largest number of {np.abs(numbers(variable)).max():.3g}."
            )

    def store_zeros(self, name, shape):
        """Store zeros for a tensor for which the model has no variable."""
        self._add(name, shape, lambda: np.zeros(shape, np.float32))

    def _add(self, name, shape, read):
        name = name if name.startswith(self._heads) else self._prefix + name
        if name in self.tensors:
            raise RuntimeError(f"The tensor {name!r} is stored twice.")
        self.tensors[name] = tuple(shape), lambda: _finite(name, read())


def _finite(name, tensor):
    if not np.isfinite(tensor).all():
        raise ValueError(
            "The weights must be finite numbers, which the model's are not. "
            f"Received: the tensor {name!r}."
        )
    return tensor
