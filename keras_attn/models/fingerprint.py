"""A fingerprint of a model in its file, which loading compares."""

import math
import weakref

import keras
import numpy as np
from keras import ops

from keras_attn.layers.adapted_projections import merged_weights
from keras_attn.layers.lora import checksum, checksums_differ

LENGTH = 3
# Relative to the largest output: other machines and backends sum in another order.
ANSWERS_DIFFER = {"float64": 1e-3, "float32": 1e-3, "float16": 0.05, "bfloat16": 0.1}


class Fingerprint(keras.layers.Layer):
    """A model's output for a small input, and a number for each of its weights.

    It is saved with the model and computed again when the model is loaded, after its layers.
    Loading so refuses a file with swapped weights, or with weights of another version of a layer.
    The fingerprint uses three tokens, so it cannot detect an edited window size.
    """

    def __init__(self, model):
        super().__init__(name="fingerprint", dtype="float32")
        self._model = weakref.ref(model)

    def answer(self):
        """Return the model's output for the small input, as one float32 vector."""
        model = self._model()
        outputs = keras.tree.flatten(model(example(model)))
        numbers = [ops.convert_to_numpy(ops.cast(x, "float32")).ravel() for x in outputs]
        return np.concatenate(numbers)

    def projections(self):
        """Return a checksum of each weight that a file of the model holds, (weights, 2)."""
        values = [value for _, value in merged_weights(self._model())]
        return np.array([checksum(value) for value in values], "float32")

    def save_own_variables(self, store):
        store["answer"] = self.answer()
        store["weights"] = self.projections()

    def load_own_variables(self, store):
        model = self._model()
        if "answer" not in store.keys():
            raise ValueError(
                f"The file must hold a fingerprint of {model.name!r}, to check that the model's "
                "output is as it was when it was saved. Received: none; "
                "`load_weights(path, skip_mismatch=True)` loads such a file without the check."
            )
        saved, found = np.asarray(store["weights"]), self.projections()
        if len(saved) != len(found):
            raise ValueError(
                f"The model {model.name!r} was saved with {len(saved)} weights. "
                f"Received: a model with {len(found)}."
            )
        differ = checksums_differ(saved, found)
        if differ.any():
            weights = [weight for weight, _ in merged_weights(model)]
            paths = [w.path for w, differs in zip(weights, differ, strict=True) if differs]
            raise ValueError(
                f"The file is not as {model.name!r} was saved: {len(paths)} of its weights differ. "
                f"Received: others at {', '.join(paths[:3])}."
            )
        saved, found = np.asarray(store["answer"]), self.answer()
        received = f"{found.size} numbers in the place of {saved.size}"
        if saved.shape == found.shape:
            error = np.abs(found - saved).max(initial=0.0) / np.abs(saved).max(initial=1e-6)
            allowed = max(ANSWERS_DIFFER.get(layer.compute_dtype, 0.0) for layer in model.layers)
            if error <= allowed or np.array_equal(saved, found, equal_nan=True):
                return
            amount = f"{error:.2g} of the greatest number, above {allowed:g}"
            received = f"answers that differ by {amount}"
        raise ValueError(
            f"The layers of {model.name!r} are of another version than those it was saved with. "
            f"Received: {received}."
        )


def example(model):
    """Return a fixed small input of a model: a dict of tensors, without optional inputs.

    Tokens differ if there are enough: attention to equal values does not depend on its weights.
    """
    tokens = num_tokens(model)
    return {
        name: ops.cast(example_array(tensor.shape, tensor.dtype, tokens), tensor.dtype)
        for name, tensor in model.input.items()
        if not model.get_layer(tensor.name).optional
    }


def num_tokens(model):
    """Return the number of token ids, from 1 on, that a model certainly has."""
    parts = [getattr(model, name, None) for name in ("embedding", "target_embedding")]
    sizes = [getattr(part, "vocabulary_size", 2) for part in parts if part is not None]
    return min(sizes, default=2) - 1


def example_array(shape, dtype, tokens):
    """Return one row of a batch: token ids from 1 to `tokens`, or small numbers; lengths are 1."""
    shape = [1, *(LENGTH if size is None else size for size in shape[1:])][: len(shape)]
    count = np.arange(math.prod(shape)).reshape(shape)
    if not keras.backend.is_int_dtype(dtype):
        return np.cos(count)
    if len(shape) > 1:
        return 1 + count % tokens
    return np.ones_like(count)
