"""The base class of all models."""

import contextlib
import os

import keras
import numpy as np
from keras import ops

from keras_attn import registry
from keras_attn.attention.segments import check_segments
from keras_attn.backend.replicas import refuse_model_parallel, whole_model
from keras_attn.depth import ACT
from keras_attn.depth.halting_record import record_halting
from keras_attn.files import atomic_file
from keras_attn.models.fingerprint import Fingerprint
from keras_attn.registry import BuildsOptimizer


class Model(BuildsOptimizer, keras.Model):
    """A functional model made of parts, saved by the configuration of its parts.

    A file also holds the model's output for a small input. Loading refuses the file if the restored
    model gives another output.

    A subclass sets `parts`, the names of its constructor's arguments, which are also attributes,
    and names its inputs. A model that reads segments has a `memory`. Where a row may hold several
    sequences, it sets `segment_inputs` and defines `packed`; these inputs are no inputs of the
    graph, nor of files and exports.
    """

    parts = ()
    memory = None
    # For each input of segment ids, the input of token ids that it belongs to.
    segment_inputs = {}

    @property
    def pad_id(self):
        """The id of padding; None for none."""
        return getattr(getattr(self, "embedding", None), "pad_id", None)

    def __init__(self, inputs, outputs, **kwargs):
        refuse_model_parallel()
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        # Not tracked by Keras: the fingerprint is no layer of the model.
        object.__setattr__(self, "fingerprint", Fingerprint(self))

    def __call__(self, inputs, *args, **kwargs):
        return super().__call__(self._complete(inputs), *args, **kwargs)

    def _complete(self, inputs):
        """Add None for absent optional inputs; convert arrays: Keras allows no mix with tensors."""
        names = [name for name, x in self.input.items() if self.get_layer(x.name).optional]
        if isinstance(inputs, (list, tuple)):
            return inputs
        if not isinstance(inputs, dict):
            inputs = {self._only_input(names): inputs}
        return {
            name: self._tensor(name, x)
            for name, x in {**dict.fromkeys(names), **inputs}.items()
            if x is not None or name not in self.segment_inputs
        }

    def _only_input(self, optional):
        """Return the name of the one input that a call needs; refuse an array for several."""
        needed = [name for name in self.input if name not in optional]
        if len(needed) == 1:
            return needed[0]
        remedy = ""
        if self.memory is not None:
            remedy = (
                " `model.initial_memory(batch_size)` gives the first memory; "
                "`memory.StatefulSegments(model)` passes it on in `fit`."
            )
        raise ValueError(
            f"`inputs` must be a dict with the keys {', '.join(needed)}.{remedy} "
            "Received: one array."
        )

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
        if np.asarray(x).dtype.kind in "US":
            raise ValueError(
                f"`{name}` must be numbers; `encode` of a tokenizer turns text into token ids. "
                f"Received: {name}={x!r}."
            )
        return ops.convert_to_tensor(x, self.input[name].dtype if name in self.input else None)

    @property
    def halting_depths(self):
        """The parts that are an `ACT`, a dict by name: encoder, decoder, or depth."""
        parts = {name: getattr(self, name, None) for name in ("encoder", "decoder", "depth")}
        return {name: part for name, part in parts.items() if isinstance(part, ACT)}

    def halting(self, inputs):
        """Return the steps and remainders of each token, of a model whose depth is an `ACT`.

        Returns:
            A dict of a `keras_attn.depth.Halting` (B, T) for each of `halting_depths`.

        Raises:
            ValueError: if the model has no such depth.
        """
        names, found = {id(part): name for name, part in self.halting_depths.items()}, {}
        if not names:
            raise ValueError(
                "`halting` needs a model whose encoder, decoder or depth is an `ACT`. "
                f"Received: {type(self).__name__} {self.name!r}."
            )

        def keep(layer, halting):
            if id(layer) in names:
                found[names[id(layer)]] = halting

        with record_halting(keep):
            self(inputs)
        return found

    def predict(self, x, batch_size=None, verbose="auto", steps=None, callbacks=None):
        distribution = keras.distribution.distribution()
        arrays = [array for array in keras.tree.flatten(x) if array is not None]
        have_rows = arrays and all(isinstance(a, np.ndarray) and a.ndim for a in arrays)
        if distribution is None or not have_rows:
            return super().predict(x, batch_size, verbose, steps, callbacks)
        # JAX refuses rows that the devices do not divide, after Keras has let go of the weights.
        count, parts = len(arrays[0]), distribution.num_model_replicas

        def padded(array):
            if array is None:
                return None
            return np.pad(array, [(0, -count % parts)] + [(0, 0)] * (array.ndim - 1))

        x = keras.tree.map_structure(padded, x)
        batch_size = parts * -(-(batch_size or 32) // parts)
        outputs = super().predict(x, batch_size, verbose, steps, callbacks)
        return keras.tree.map_structure(lambda array: array[:count], outputs)

    def save(self, filepath, overwrite=True, **kwargs):
        """Save the model as Keras does, to a file that is complete or absent.

        If processes hold parts of the model, all of them must save, each to a path of its own, or
        let one of them save inside `keras_attn.backend.replicas.whole_model`.
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(whole_model(self))
            if overwrite and os.fspath(filepath).endswith(".keras"):
                filepath = stack.enter_context(atomic_file(filepath))
            return super().save(filepath, overwrite, **kwargs)

    def get_config(self):
        parts = {name: getattr(self, name) for name in self.parts}
        # One part saves a table that several share: a file must not make two tables of one.
        if parts.get("target_embedding") is parts["embedding"]:
            parts["target_embedding"] = None
        for name in ("embedding", "target_embedding"):
            if name in parts and parts[name] is getattr(parts.get("head"), "embedding", None):
                parts[name] = None
        return {"name": self.name, **registry.serialize(parts)}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**{name: registry.revive(_unbuilt_head(part)) for name, part in config.items()})


def _unbuilt_head(config):
    """Return the configuration of a part; a dense head is built by the model, which has its rules.

    Keras would build it before: outside of any model, where no rule divides its weights.
    """
    if not isinstance(config, dict):
        return config
    if "class_name" not in config:  # a dict of heads
        return {name: _unbuilt_head(part) for name, part in config.items()}
    is_dense = config["class_name"] == "Dense" and config.get("registered_name") is None
    return {key: x for key, x in config.items() if not (is_dense and key == "build_config")}
