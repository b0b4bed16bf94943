"""The base class of all models, and the functions that their constructors share."""

import keras
from keras import ops

from keras_attn import positions, registry
from keras_attn.attention.masks import check_segments, same_segment, segment_positions
from keras_attn.compat.keras_layers import flatten_layers
from keras_attn.depth import Stack
from keras_attn.feed_forward import PositionMixer
from keras_attn.layers import MultiHeadAttention
from keras_attn.models.fingerprint import Fingerprint


class Model(keras.Model):
    """A functional model made of parts, saved by the configuration of its parts.

    A file also holds the model's output for a small input. Loading refuses the file if the restored
    model gives another output.

    A subclass sets `parts`, the names of its constructor's arguments, which are also attributes,
    and names its inputs. Where a row may hold several sequences, it sets `segment_inputs` and
    defines `packed`; these inputs are no inputs of the graph, nor of files and exports.
    """

    parts = ()
    # For each input of segment ids, the input of token ids that it belongs to.
    segment_inputs = {}

    def __init__(self, inputs, outputs, **kwargs):
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        # Not tracked by Keras: the fingerprint is no layer of the model.
        object.__setattr__(self, "fingerprint", Fingerprint(self))

    def __call__(self, inputs, *args, **kwargs):
        return super().__call__(self._complete(inputs), *args, **kwargs)

    def _complete(self, inputs):
        """Add None for absent optional inputs; convert arrays: Keras allows no mix with tensors."""
        if not isinstance(inputs, dict):
            return inputs
        names = [name for name, x in self.input.items() if self.get_layer(x.name).optional]
        return {
            name: self._tensor(name, x)
            for name, x in {**dict.fromkeys(names), **inputs}.items()
            if x is not None or name not in self.segment_inputs
        }

    def call(self, inputs, training=None, mask=None):
        inputs = self._complete(inputs)  # training on JAX calls this without `__call__`
        if not self._are_packed(inputs):
            return super().call(inputs, training=training, mask=mask)
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
        if self._are_packed(inputs):
            inputs = {name: inputs[name] for name in self.input}
        return super().compute_output_spec(inputs, training=training, mask=mask)

    def _are_packed(self, inputs):
        return isinstance(inputs, dict) and any(name in inputs for name in self.segment_inputs)

    def _tensor(self, name, x):
        if x is None or ops.is_tensor(x) or keras.utils.is_keras_tensor(x):
            return x
        return ops.convert_to_tensor(x, self.input[name].dtype if name in self.input else None)

    def make_train_function(self, force=False):
        # Variables made inside the first step would make TensorFlow trace the step twice.
        if not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    def get_config(self):
        parts = {name: getattr(self, name) for name in self.parts}
        if getattr(parts.get("head"), "embedding", None) is parts["embedding"]:
            parts["embedding"] = None  # The head saves it; a file must not make two tables of one.
        return {"name": self.name, **registry.serialize(parts)}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        parts = {
            name: registry.deserialize(part) if isinstance(part, dict) else part
            for name, part in config.items()
        }
        return cls(**parts)


def token_input(name, optional=False):
    """Return a symbolic input of integers (B, T)."""
    return keras.Input((None,), dtype="int32", name=name, optional=optional)


def memory_inputs(depth, hidden_dim):
    """Return the symbolic inputs of the state of a segment memory."""
    if not isinstance(depth, Stack):
        raise ValueError(
            "`depth` must be one whose call accepts a memory, as a `Stack`'s does. "
            f"Received: depth of type {type(depth).__name__}."
        )
    slots = (depth.num_layers, None, hidden_dim)
    return {
        "memory": keras.Input(slots, dtype=depth.compute_dtype, name="memory"),
        "memory_length": keras.Input((), dtype="int32", name="memory_length"),
    }


def position_of(identifier, embedding):
    """Return the position for a name or an object, in the embedding's dtype policy."""
    if identifier is None:
        return None
    return positions.get(identifier, dtype=embedding.dtype_policy)


def embed(embedding, position, token_ids, positions=None):
    """Embed tokens and add their positions, by default 0 .. T-1, if there is a `position`."""
    x = embedding(token_ids)
    return x if position is None else position(x, positions)


def embed_packed(model, position, token_ids, segment_ids):
    """Embed packed rows; also return the arguments of a depth that keep their sequences apart."""
    places = segment_positions(segment_ids)
    x = model.drop(embed(model.embedding, position, token_ids, places))
    apart = {"attention_mask": same_segment(segment_ids)}
    return x, {**apart, "query_positions": places, "key_positions": places}


def last_states(x, last):
    """Return the states (B, 1, D) at the indices `last` (B, 1) of `x`; all of them for None."""
    return x if last is None else ops.take_along_axis(x, last[..., None], axis=1)


def max_num_positions(*layers):
    """Return the smallest `max_length` of the positions in some layers; None for no limit."""
    parts = [part for layer in layers if layer is not None for part in flatten_layers(layer)]
    lengths = [part.max_length for part in parts if isinstance(part, positions.Position)]
    return min((length for length in lengths if length is not None), default=None)


def check_causal(depth):
    """Raise a `ValueError` where a layer of `depth` lets a position attend to a later one."""
    for layer in flatten_layers(depth):
        if isinstance(layer, MultiHeadAttention) and not layer.pattern.causal:
            raise ValueError(
                "The blocks' `pattern` must be causal, since each token is predicted from those "
                f"before it. Received: pattern={layer.pattern!r} in the layer {layer.name!r}."
            )


def check_packable(*depths):
    """Raise a `ValueError` where a layer would mix the sequences of a packed row."""
    for depth in depths:
        if not isinstance(depth, Stack):
            raise ValueError(
                "Packed rows need a depth whose call accepts `attention_mask`, `query_positions` "
                "and `key_positions`, as a `Stack` does. "
                f"Received: depth of type {type(depth).__name__}."
            )
        for layer in flatten_layers(depth):
            if isinstance(layer, MultiHeadAttention) and layer.pattern.is_random:
                raise ValueError(
                    "Packed rows need a pattern that depends on positions only, not on hashes of "
                    "all keys of a row. "
                    f"Received: pattern={layer.pattern!r} in the layer {layer.name!r}."
                )
            if isinstance(layer, PositionMixer):
                raise ValueError(
                    "Packed rows need feed-forward layers that do not mix positions; others would "
                    "read the neighbouring sequence. "
                    f"Received: {type(layer).__name__} in the layer {layer.name!r}."
                )
