"""The base class of all models, and their fingerprint in files, which loading compares."""

import contextlib
import inspect
import math
import os
import weakref

import keras
import numpy as np
from keras import ops

from keras_attn import registry
from keras_attn.attention.segments import check_segments
from keras_attn.backend.replicas import refuse_model_parallel, whole_model
from keras_attn.compat.cloning import keep_ties
from keras_attn.compat.keras_layers import flatten_layers
from keras_attn.compat.torch_parameters import renew_parameters
from keras_attn.depth import ACT
from keras_attn.depth.halting import record_halting
from keras_attn.files import atomic_file
from keras_attn.layers.adapted_projections import merged_weights
from keras_attn.layers.kernel_quantization import quantize_kernels
from keras_attn.layers.lora import check_merged, checksum, checksums_differ
from keras_attn.models.optional_inputs import OptionalInputs
from keras_attn.part_names import name_layers, name_seeds
from keras_attn.part_states import PART_STATES, part_states, quantized_parts, restore_parts
from keras_attn.quantized_kernels import RANGES
from keras_attn.registry import BuildsOptimizer, NumPyNumbers
from keras_attn.sublayers import layers_in


class Model(OptionalInputs, NumPyNumbers, BuildsOptimizer, keras.Model):
    """A functional model made of parts, saved by the configuration of its parts.

    A file also holds the model's output for a small input. Loading refuses the file if the restored
    model gives another output.

    A subclass sets `parts`, the names of its constructor's arguments, which are also attributes,
    and names its inputs. A model that reads segments has a `memory`. Where a row may hold several
    sequences, it sets `segment_inputs` and defines `packed`; these inputs are no inputs of the
    graph, nor of files and exports.
    """

    parts = ()

    @property
    def pad_id(self):
        """The id of padding; None for none."""
        return getattr(getattr(self, "embedding", None), "pad_id", None)

    def __new__(cls, *args, **kwargs):
        parts = inspect.signature(cls.__init__).bind_partial(None, *args, **kwargs).arguments
        # Before the constructor builds them. Names in a model are unique, and the input of a memory
        # is called `memory`: so the layer is `memory_layer`.
        name_layers(layers_in({f"{k}_layer" if k == "memory" else k: x for k, x in parts.items()}))
        return super().__new__(cls, *args, **kwargs)

    def __init__(self, inputs, outputs, **kwargs):
        refuse_model_parallel()
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        self.memory = None  # no attribute of the class, which would hide the layer on torch
        for layer in self.layers:
            name_seeds(layer)
        renew_parameters(self)
        # Not tracked by Keras: the fingerprint is no layer of the model.
        object.__setattr__(self, "fingerprint", Fingerprint(self))

    def call(self, inputs, training=None, mask=None):
        if not self._are_packed(inputs):
            return super().call(inputs, training=training, mask=mask)
        inputs = self.complete_inputs(inputs)
        tensors = {name: ops.cast(inputs[name], x.dtype) for name, x in self.input.items()}
        for name, tokens in self.segment_inputs.items():
            if name not in inputs:
                raise ValueError(
                    "A packed row needs the segment ids of each side. Received: inputs "
                    f"{', '.join(sorted(inputs))}, without `{name}`."
                )
            tensors[name] = check_segments(inputs[name], tensors[tokens], name, tokens)
        return self.packed(**tensors)

    def compute_output_spec(self, inputs, training=None, mask=None):
        if self._are_packed(inputs):
            inputs = {name: inputs[name] for name in self.input}
        return super().compute_output_spec(inputs, training=training, mask=mask)

    def _are_packed(self, inputs):
        return isinstance(inputs, dict) and any(name in inputs for name in self.segment_inputs)

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
        names = {id(part): name for name, part in self.halting_depths.items()}
        records = {}
        if not names:
            raise ValueError(
                "`halting` needs a model whose encoder, decoder or depth is an `ACT`. "
                f"Received: {type(self).__name__} {self.name!r}."
            )

        def keep(layer, halting):
            if id(layer) in names:
                records[names[id(layer)]] = halting

        with record_halting(keep):
            self(inputs)
        return records

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

    def quantize(self, mode=None, config=None, filters=None, **kwargs):
        """Quantize the model as Keras does, and the kernels of attention and experts too.

        The kernels are stored as `layers.quantize_kernels` says; "float8" leaves them as they are.
        Files and clones of the model are quantized too. `convert.to_hugging_face` and
        `export.ctranslate2` need a model in floats.
        """
        check_merged(self)
        super().quantize(mode, config=config, filters=filters, **kwargs)
        mode = mode if config is None else config.mode
        if mode in RANGES:
            quantize_kernels(self, mode, filters)

    def _saved_parts(self):
        """Return the values of the constructor's arguments, a layer that another holds as None."""
        parts = {name: getattr(self, name) for name in self.parts}
        # One part saves a table that several share: a file must not make two tables of one.
        if parts.get("target_embedding") is parts["embedding"]:
            parts["target_embedding"] = None
        for name in ("embedding", "target_embedding"):
            holders = (getattr(parts.get(part), "embedding", None) for part in ("head", "encoder"))
            if any(parts.get(name) is own for own in holders if own is not None):
                parts[name] = None
        return parts

    def clone_with(self, clone):
        """Return a model of this class of the layers that `clone` returns for its parts."""

        def clone_layer(value):
            return clone(value) if isinstance(value, keras.layers.Layer) else value

        parts = keras.tree.map_structure(clone_layer, self._saved_parts())
        model = type(self)(**parts, name=self.name)
        restore_parts(model, part_states(self))
        return model

    def get_config(self):
        parts = registry.serialize(self._saved_parts())
        return {"name": self.name, **parts, **part_states(self)}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        states = {name: config[name] for name in PART_STATES if name in config}
        parts = registry.unbuilt({name: config[name] for name in config if name not in states})
        model = cls(**{name: registry.revive(part) for name, part in parts.items()})
        restore_parts(model, states)
        return model


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

    def weights_in_file(self):
        """Return pairs of each weight that a file of the model holds, and its value there."""
        pairs = merged_weights(self._model())
        if quantized_parts(self._model()):  # Keras builds such layers with weights in another order
            pairs.sort(key=lambda pair: pair[0].path)
        return pairs

    def projections(self):
        """Return a checksum of each weight that a file of the model holds, (weights, 2)."""
        return np.array([checksum(value) for _, value in self.weights_in_file()], "float32")

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
        saved, own = np.asarray(store["weights"]), self.projections()
        if len(saved) != len(own):
            raise ValueError(
                f"The model {model.name!r} was saved with {len(saved)} weights. "
                f"Received: a model with {len(own)}."
            )
        differ = checksums_differ(saved, own)
        if differ.any():
            weights = [weight for weight, _ in self.weights_in_file()]
            paths = [w.path for w, differs in zip(weights, differ, strict=True) if differs]
            raise ValueError(
                f"The file is not as {model.name!r} was saved: {len(paths)} of its weights differ. "
                f"Received: others at {', '.join(paths[:3])}."
            )
        saved, own = np.asarray(store["answer"]), self.answer()
        received = f"{own.size} numbers in the place of {saved.size}"
        if saved.shape == own.shape:
            error = np.abs(own - saved).max(initial=0.0) / np.abs(saved).max(initial=1e-6)
            allowed = max(ANSWERS_DIFFER.get(layer.compute_dtype, 0.0) for layer in model.layers)
            if error <= allowed or np.array_equal(saved, own, equal_nan=True):
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
    if isinstance(model, Model):
        parts = [getattr(model, name, None) for name in ("embedding", "target_embedding")]
        sizes = [getattr(part, "vocabulary_size", 2) for part in parts if part is not None]
    else:
        # Of a user's own: the smallest table but those of two segments.
        sizes = [n for layer in flatten_layers(model) if (n := num_ids(layer)) not in (None, 2)]
    return min(sizes, default=2) - 1


def num_ids(layer):
    """Return the number of ids that an embedding reads; None for any other layer."""
    if isinstance(layer, keras.layers.Embedding):
        return layer.input_dim
    size = getattr(layer, "vocabulary_size", None)
    return size if isinstance(size, int) else None  # a method of Keras's TextVectorization


def example_array(shape, dtype, tokens):
    """Return one row of a batch: token ids from 1 to `tokens`, or small numbers; lengths are 1."""
    shape = [1, *(LENGTH if size is None else size for size in shape[1:])][: len(shape)]
    count = np.arange(math.prod(shape)).reshape(shape)
    if not keras.backend.is_int_dtype(dtype):
        return np.cos(count)
    if len(shape) > 1:
        return 1 + count % tokens
    return np.ones_like(count)


def _has_own_layers(model):
    return any(isinstance(layer, registry.Composite) for layer in model.layers)


def _clone(model, clone):
    return model.clone_with(clone) if isinstance(model, Model) else None


keep_ties(_has_own_layers, _clone)
