"""What every model is."""

import inspect

import keras
from keras import ops

from keras_attn.attention.masks import check_segments
from keras_attn.compat.keras_history import is_optional_input
from keras_attn.compat.keras_layers import flatten_layers
from keras_attn.models.fingerprint import Fingerprint
from keras_attn.patterns.pattern import Pattern


class Model(keras.Model):
    """A functional model made of parts, saved by the configuration of its parts.

    A file holds what the model answers to a small input too, and is refused when it is loaded and
    the answer is another one.

    A subclass sets `parts`, the names of its constructor's arguments that are also attributes, and
    names its inputs. Where a row may hold several sequences, it sets `segment_inputs` and defines
    `packed`: inputs beside those of the graph, so that files, exports and whoever goes through
    `model.input` know nothing of them.
    """

    parts = ()
    # By the name of each input that says which sequence a token is of, that of its tokens.
    segment_inputs = {}

    def __init__(self, inputs, outputs, **kwargs):
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        # Beside Keras's tracking: it is no layer of the model.
        object.__setattr__(self, "fingerprint", Fingerprint(self))

    def __call__(self, inputs, *args, **kwargs):
        return super().__call__(self._complete(inputs), *args, **kwargs)

    def _complete(self, inputs):
        """An optional input of a functional model may be None but not absent; and arrays of NumPy,
        such as token ids, may not stand beside tensors, such as a memory."""
        if not isinstance(inputs, dict):
            return inputs
        absent = {name: None for name, x in self.input.items() if is_optional_input(x)}
        inputs = {name: self._tensor(name, x) for name, x in {**absent, **inputs}.items()}
        for name in self.segment_inputs:
            if inputs.get(name, self) is None:
                del inputs[name]
        return inputs

    def call(self, inputs, training=None, mask=None):
        inputs = self._complete(inputs)  # what trains on JAX comes here without `__call__`
        if not _are_packed(self, inputs):
            return super().call(inputs, training=training, mask=mask)
        # As a functional model does, which Keras has seen to have all its inputs.
        given = {name: ops.cast(inputs[name], x.dtype) for name, x in self.input.items()}
        for name, of_tokens in self.segment_inputs.items():
            if name not in inputs:
                raise ValueError(
                    "A packed row needs the segment ids of each side. Received: inputs "
                    f"{', '.join(sorted(inputs))}, without `{name}`."
                )
            given[name] = check_segments(inputs[name], given[of_tokens], name, of_tokens)
        return self.packed(**given)

    def compute_output_spec(self, inputs, training=None, mask=None):
        if _are_packed(self, inputs):
            inputs = {name: inputs[name] for name in self.input}
        return super().compute_output_spec(inputs, training=training, mask=mask)

    def _tensor(self, name, x):
        if x is None or ops.is_tensor(x) or keras.utils.is_keras_tensor(x):
            return x
        return ops.convert_to_tensor(x, self.input[name].dtype if name in self.input else None)

    def make_train_function(self, force=False):
        # Otherwise the optimizer's variables are made inside the first step, which TensorFlow then
        # traces twice.
        if not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    def get_config(self):
        config = {"name": self.name}
        for part in self.parts:
            value = getattr(self, part)
            is_object = hasattr(value, "get_config")
            config[part] = keras.saving.serialize_keras_object(value) if is_object else value
        return config

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**config)


def num_positions(*layers):
    """How many positions some layers and those inside them tell apart; None for any number."""
    parts = (part for layer in layers if layer is not None for part in flatten_layers(layer))
    lengths = (getattr(part, "max_length", None) for part in parts)
    return min((length for length in lengths if length is not None), default=None)


def check_causal(depth):
    """Raises a `ValueError` where a layer of `depth` lets a position attend to a later one."""
    for layer in flatten_layers(depth):
        pattern = getattr(layer, "pattern", None)
        if isinstance(pattern, Pattern) and not pattern.causal:
            raise ValueError(
                "The blocks' `pattern` must be causal, since each token is predicted from those "
                f"before it. Received: pattern={pattern!r} in the layer {layer.name!r}."
            )


def check_packable(*depths):
    """Raises a `ValueError` where a layer sees a whole row, and not its own sequence alone."""
    needed = {"attention_mask", "query_positions", "key_positions"}
    for depth in depths:
        missing = needed - set(inspect.signature(depth.call).parameters)
        if missing:
            raise ValueError(
                "Rows of several sequences need a depth that is told who may see whom, by "
                f"{', '.join(f'`{name}`' for name in sorted(missing))}. "
                f"Received: depth of type {type(depth).__name__}."
            )
        for layer in flatten_layers(depth):
            pattern = getattr(layer, "pattern", None)
            if isinstance(pattern, Pattern) and pattern.is_random:
                raise ValueError(
                    "Rows of several sequences need a pattern that looks at two positions alone, "
                    "not at which keys of a row hash alike. "
                    f"Received: pattern={pattern!r} in the layer {layer.name!r}."
                )
            if getattr(layer, "mixes_positions", False):
                raise ValueError(
                    "Rows of several sequences need layers that look at one position each, but for "
                    "attention: others would see the neighbouring sequence. "
                    f"Received: {type(layer).__name__} in the layer {layer.name!r}."
                )


def _are_packed(model, inputs):
    return isinstance(inputs, dict) and any(name in inputs for name in model.segment_inputs)


def restore(*parts):
    """The parts of a model, those that are configurations made into objects."""
    return tuple(
        keras.saving.deserialize_keras_object(part) if isinstance(part, dict) else part
        for part in parts
    )
