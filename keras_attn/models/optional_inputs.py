"""Functional models that are called without their optional inputs."""

import functools

import keras
import numpy as np
from keras import ops

from keras_attn import registry
from keras_attn.ops.ids import narrow
from keras_attn.registry import BuildsOptimizer


class OptionalInputs:
    """Mixin of a functional model of several inputs that may be called with those it needs.

    The inputs are a dict, or one array if the model needs one only. Put it before `keras.Model`.
    """

    # For each input of segment ids, the input of token ids that it belongs to.
    segment_inputs = {}

    def __call__(self, inputs, *args, **kwargs):
        return super().__call__(self.complete_inputs(inputs), *args, **kwargs)

    def call(self, inputs, training=None, mask=None):
        # Training on JAX calls this without `__call__`.
        return super().call(self.complete_inputs(inputs), training=training, mask=mask)

    def compute_output_shape(self, input_shape):
        """Return the shapes of the outputs for those of the inputs, a dict or of the only one."""
        if not isinstance(self.input, dict):
            return super().compute_output_shape(input_shape)
        shapes = input_shape
        if not isinstance(input_shape, dict):
            shapes = {self._only_input: input_shape}
        inputs = {name: keras.KerasTensor(x, self.input[name].dtype) for name, x in shapes.items()}
        spec = self.compute_output_spec(inputs)
        return keras.tree.map_structure(lambda x: x.shape, spec)

    def compute_output_spec(self, inputs, training=None, mask=None):
        inputs = self.complete_inputs(inputs)
        if isinstance(inputs, dict) and any(x is None for x in inputs.values()):
            # Keras asks an absent input for its shape: trace the call.
            return keras.Operation.compute_output_spec(self, inputs, training=training, mask=mask)
        return super().compute_output_spec(inputs, training=training, mask=mask)

    def complete_inputs(self, inputs):
        """Add None for absent optional inputs; convert arrays: Keras allows no mix with tensors."""
        if isinstance(inputs, (list, tuple)) or not isinstance(self.input, dict):
            return inputs
        if not isinstance(inputs, dict):
            inputs = {self._only_input: inputs}
        return {
            name: self._tensor(name, x)
            for name, x in {**dict.fromkeys(self._optional_inputs), **inputs}.items()
            if x is not None or name not in self.segment_inputs
        }

    @functools.cached_property
    def _optional_inputs(self):
        """The names of the inputs that a call may leave out."""
        return [name for name, x in self.input.items() if self.get_layer(x.name).optional]

    @property
    def _only_input(self):
        """The name of the one input that a call needs; an array for several is refused."""
        needed = [name for name in self.input if name not in self._optional_inputs]
        if len(needed) == 1:
            return needed[0]
        remedy = ""
        if getattr(self, "memory", None) is not None:
            remedy = (
                " `model.initial_memory(batch_size)` gives the first memory; "
                "`memory.StatefulSegments(model)` passes it on in `fit`."
            )
        raise ValueError(
            f"`inputs` must be a dict with the keys {', '.join(needed)}.{remedy} "
            "Received: one array."
        )

    def _tensor(self, name, x):
        if x is None or ops.is_tensor(x) or keras.utils.is_keras_tensor(x):
            return narrow(x)  # Keras casts it to the input's dtype
        array = np.asarray(x)
        if array.dtype.kind in "US":
            raise ValueError(
                f"`{name}` must be numbers; `encode` of a tokenizer turns text into token ids. "
                f"Received: {name}={x!r}."
            )
        dtype = self.input[name].dtype if name in self.input else None
        return ops.convert_to_tensor(narrow(array), dtype)


@registry.register
class Part(OptionalInputs, BuildsOptimizer, keras.Model):
    """Make a part of a model a model of its own, called without the inputs that are optional.

    It has the same layers and weights. A `keras.Model` of them would require all inputs. It is
    trained, saved, loaded and cloned like any model.

    Args:
        inputs: `model.input` of a model of this package.
        outputs: a tensor of its graph, or several, such as `model.get_layer("encoder").output`.

    Call arguments:
        inputs: a dict of those of the model, of their shapes (B, ...), or one array if the part
            needs one only.

    Returns:
        The values of `outputs`, of shapes (B, ...).

    Raises:
        ValueError: if one array is given for several inputs.

    Example:
        >>> import keras, keras_attn
        >>> bert = keras_attn.models.bert(100, num_layers=1, num_heads=2, hidden_dim=8)
        >>> features = keras_attn.models.Part(bert.input, bert.get_layer("encoder").output)
        >>> features(keras.ops.ones((1, 3), "int32")).shape
        TensorShape([1, 3, 8])

    Differs from the paper: none; a way to use it.

    Reference: https://keras.io/guides/functional_api, on the extraction of features.
    """
