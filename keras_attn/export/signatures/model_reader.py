"""Inputs and outputs of a Keras model of one's own, which reads ids."""

import contextlib
import dataclasses
import inspect
import re

import keras
import numpy as np
import tensorflow as tf

from keras_attn.compat.keras_layers import flatten_layers
from keras_attn.export.checks import check_is_tokenizer
from keras_attn.export.signatures.model_functions import length_mask
from keras_attn.models.model import num_ids
from keras_attn.ops.checks import check_that

# The names of the inputs of models, by what a text gives for them.
ROLES = {
    "token_ids": ("token_ids", "input_ids", "ids", "tokens", "input_word_ids"),
    "segment_ids": ("segment_ids", "token_type_ids", "input_type_ids"),
    "padding_mask": ("padding_mask", "attention_mask", "mask", "input_mask"),
    "lengths": ("lengths",),
    "position_ids": ("position_ids", "positions"),
}
# Outputs of a row, alone and with padding: relative to their greatest magnitude.
TOLERANCE = 1e-4
_NUM_IDS, _NUM_PADDING = 5, 4  # of the row that is compared with itself


def name_of_output(name):
    """Return the subject of a sentence about an output of a model."""
    return "The model's output" if name is None else f"The model's output {name!r}"


def is_functional(model):
    """Return True for a model of a graph of layers, with its own inputs and outputs."""
    has_graph = hasattr(model, "operations") and hasattr(model, "inputs")
    return has_graph and not isinstance(model, keras.Sequential)


def named_outputs(model, outputs):
    """Return pairs of a name and a tensor of what a model returns; the only one has the name None.

    Those of a list have the names of the layers that make them.
    """
    flat = keras.tree.flatten(outputs)
    if len(flat) == 1:
        return [(None, flat[0])]
    if isinstance(outputs, dict):
        paths = [path for path, _ in keras.tree.flatten_with_path(outputs)]
        return [("_".join(map(str, path)), x) for path, x in zip(paths, flat, strict=True)]
    names = [f"output_{i}" for i in range(len(flat))]
    if is_functional(model) and len(set(model.output_names)) == len(flat):
        names = model.output_names
    return list(zip(names, flat, strict=True))


@dataclasses.dataclass(frozen=True)
class InputOfModel:
    """An input of a model: its name, and its shape and dtype where they are known."""

    name: str
    shape: tuple | None = None
    dtype: str | None = None

    def __str__(self):
        shape = "" if self.shape is None else f" of shape {self.shape}"
        return f"{self.name!r}{shape}"


class ModelReader:
    """A model as a function of ids and lengths.

    Args:
        model: a `keras.Model` that was called before.
        names: the `inputs` of `TextModel`.
        tokenizer: of the ids, or None.
        max_length: int. Most ids of a row.

    Attributes:
        roles: dict of the model's inputs, an `InputOfModel` for each role.
        vocabulary_size: int. The number of ids that the model has, None if it is unknown.
        fixed_length: int. The number of ids in a row; None for any number.
        max_length: int. Most ids of a row.
        pad_id: int. The id after the end of a row.
        examples: dict of the outputs by name, arrays of a few rows.
    """

    def __init__(self, model, names=None, tokenizer=None, max_length=1024):
        if not model.built:
            raise ValueError(
                "`model` must have its weights: call it once, with ids of shape (batch, length). "
                f"Received: {type(model).__name__} {model.name!r}, which was never called."
            )
        self._model = model
        inputs, self._call = _inputs_of(model)
        self.roles = _roles_of(inputs, names)
        ids = self.roles["token_ids"]
        self.fixed_length, self.max_length = None, max_length
        self._tokenizer = tokenizer
        declared = None
        if ids.shape is not None and ids.shape[0] is None:  # else it is that of one call
            declared = ids.shape[1]
        if is_functional(model) and declared is not None:
            self._fix(declared)
            self._examine(ids)
            return
        try:
            self._examine(ids)
        except ValueError:
            if declared is None:
                raise
            # Trained with rows of one length, as of `pad_sequences`.
            self._fix(declared)
            self._examine(ids)

    def _fix(self, length):
        self.fixed_length, self.max_length = length, min(self.max_length, length)

    def _examine(self, ids):
        """Call the model for its vocabulary, and for outputs that padding must not change."""
        tokenizer, self.pad_id = self._tokenizer, 0
        embeddings = self._embeddings()
        self.vocabulary_size = min(map(num_ids, embeddings), default=None)
        if not embeddings and "float" in (ids.dtype or ""):
            raise ValueError(
                "`model` must read token ids, by an embedding; Keras's `model.export(path)` writes "
                f"one that does not. Received: the input {ids} with floats."
            )
        if tokenizer is not None:
            check_is_tokenizer(tokenizer)
            count = tokenizer.for_sources().vocabulary_size
            wanted = f"one of at most {self.vocabulary_size} ids, those of the model's embedding"
            is_small = self.vocabulary_size is None or count <= self.vocabulary_size
            check_that(is_small, wanted, tokenizer=tokenizer)
        # The padding of the tokenizer, with which such a model is trained.
        own = next((x for layer in embeddings if (x := getattr(layer, "pad_id", None))), 0)
        self.pad_id = own if tokenizer is None else tokenizer.fill_id
        self.examples = self._examples()

    def predict(self, token_ids, lengths, segment_ids=None):
        """Return the float32 outputs of the model, a dict by name, of ids (B, T) and `lengths`.

        A row without columns has one of padding.
        """
        width = tf.shape(token_ids)[1]
        columns = tf.maximum(width, 1) if self.fixed_length is None else self.fixed_length
        more = [[0, 0], [0, columns - width]]
        is_token = length_mask(tf.pad(token_ids, more), lengths)
        token_ids = tf.where(is_token, tf.pad(token_ids, more), self.pad_id)
        segments = tf.zeros_like(token_ids)
        if segment_ids is not None:
            segments = tf.pad(segment_ids, more)
        arrays = {
            "token_ids": token_ids,
            "segment_ids": segments,
            "padding_mask": is_token,
            "lengths": lengths,
            "position_ids": tf.zeros_like(token_ids) + tf.range(columns),
        }
        outputs = self._call(
            {x.name: _cast(arrays[role], x.dtype) for role, x in self.roles.items()}
        )
        named = named_outputs(self._model, outputs)
        outputs = {name: tf.cast(x, tf.float32) for name, x in named}
        return {name: x[:, :width] if x.shape.rank == 3 else x for name, x in outputs.items()}

    @contextlib.contextmanager
    def explaining(self, rows, length):
        """Turn an error of a call with ids (rows, length) into one that names the arguments."""
        try:
            yield
        except (TypeError, KeyError, ValueError, tf.errors.OpError) as error:
            names = ", ".join(f"{role} as {x}" for role, x in self.roles.items())
            raise ValueError(
                f"`model` must read ids of shape ({rows}, {length}): `inputs` names its inputs, "
                "and `max_source_length` is the most ids in a row. "
                f"Received: max_source_length={self.max_length}, {names}, and {_cause(error)}"
            ) from error

    def _embeddings(self):
        """Return the layers that embed the ids, of which other layers read none."""
        # Unlike positions, segments and masks, for which they are 0, 1, 2 ..., zeros and ones.
        ids = np.array([[1, 0, 1, 1, 0][: self.max_length]], "int32")
        read = []
        with contextlib.ExitStack() as stack:
            for layer in flatten_layers(self._model):
                if num_ids(layer) is not None:
                    stack.enter_context(_watched(layer, read))
            self._arrays(ids)
        eager = [(layer, np.asarray(x)) for layer, x in read if not tf.is_symbolic_tensor(x)]
        rows = [(layer, x[:, : ids.shape[1]]) for layer, x in eager if x.ndim == 2]
        readers = [layer for layer, x in rows if np.array_equal(x, ids)]
        # A `call` that is a `tf.function` shows no numbers: its only embedding is that of the ids.
        only = {id(layer): layer for layer, x in read if tf.is_symbolic_tensor(x)}
        return list(only.values()) if not readers and len(only) == 1 else readers

    def _arrays(self, ids, num_padding=0):
        """Return the outputs of rows of ids, with more columns of padding, as arrays by name."""
        rows, length = ids.shape
        padded = np.pad(ids, [(0, 0), (0, num_padding)], constant_values=self.pad_id)
        with self.explaining(*padded.shape):
            outputs = self.predict(tf.constant(padded), tf.constant([length] * rows))
        # Of tags those of padding are none.
        return {
            name: x.numpy()[:, :length] if x.shape.rank == 3 else x.numpy()
            for name, x in outputs.items()
        }

    def _examples(self):
        """Return outputs of two rows; raise a `ValueError` if padding changes them."""
        known = [i for i in range(1, min(self.vocabulary_size or 2, 1000)) if i != self.pad_id]
        length = min(_NUM_IDS, self.max_length)
        ids = np.random.default_rng(0).choice(known or [0], (2, length)).astype("int32")
        outputs, again = self._arrays(ids), self._arrays(ids)
        for name, x in outputs.items():
            if x.ndim not in (1, 2, 3) or len(x) != 2 or x.ndim == 3 and x.shape[1] != length:
                shape = str(x.shape).replace("2", "batch", 1)
                raise ValueError(
                    f"{name_of_output(name)} must have the shape (batch,), (batch, classes) or "
                    "(batch, length, classes): pool it, or leave it out by `keras.Model`. "
                    f"Received: shape={shape} for {length} ids in a row."
                )
            if _difference(x, again[name]) > 0:
                raise ValueError(
                    f"{name_of_output(name)} must be the same for the same ids: let `training` of "
                    "`call` be None or False by default. Received: other numbers in a second call."
                )
        if self.fixed_length is None:
            padded = self._arrays(ids, min(_NUM_PADDING, self.max_length - length))
            for name, x in outputs.items():
                if (difference := _difference(x, padded[name])) > 0:
                    raise ValueError(
                        f"{name_of_output(name)} must not depend on padding, which shorter texts "
                        "of a batch have: let each layer and the pooling read the mask of "
                        "`Embedding(mask_zero=True)`, by `mask=` where a sum drops it, or an input "
                        "`padding_mask`; or read a fixed length, `keras.Input((100,))`. Received: "
                        f"a difference of {difference:.2g} by padding with the id {self.pad_id}."
                    )
        return outputs


def _difference(expected, output):
    """Return the greatest difference of two arrays; 0 if it is within the tolerance."""
    if expected.shape != output.shape:
        return np.inf
    difference = np.nan_to_num(np.abs(output - expected).max(initial=0.0), nan=np.inf)
    is_small = difference <= TOLERANCE * np.abs(expected).max(initial=1e-6)
    return 0.0 if is_small else difference


def _cause(error):
    """Return the line of an error that says most: Keras's first line names the layer alone."""
    lines = [line.strip() for line in re.sub(r"\x1b\[\d*m", "", str(error)).splitlines()]
    lines = [line for line in lines if line] or [type(error).__name__]
    return lines[lines[0].startswith("Exception encountered") and len(lines) > 1]


def _cast(tensor, dtype):
    return tensor if dtype is None else tf.cast(tensor, dtype)


@contextlib.contextmanager
def _watched(layer, read):
    """Add a layer and its first argument to the list `read` at each call."""
    name = "call" if getattr(layer, "quantization_mode", None) is None else "quantized_call"
    call = getattr(layer, name)

    def watch(*args, **kwargs):
        read.append((layer, (*args, *kwargs.values())[0]))
        return call(*args, **kwargs)

    setattr(layer, name, watch)
    try:
        yield
    finally:
        delattr(layer, name)


def _inputs_of(model):
    """Return the inputs of a model, and a function that calls it with a dict of them by name."""
    if is_functional(model):
        paths = keras.tree.flatten_with_path(model.input)
        is_dict = isinstance(model.input, dict)
        inputs = [
            InputOfModel(path[-1] if is_dict else x.name, tuple(x.shape), x.dtype)
            for path, x in paths
        ]

        def call(values):
            flat = [values[each.name] for each in inputs]
            return model(keras.tree.pack_sequence_as(model.input, flat))

        return inputs, call
    if isinstance(model, keras.Sequential):
        (tensor,) = model.inputs
        each = InputOfModel(tensor.name, tuple(tensor.shape), tensor.dtype)
        return [each], lambda values: model(values[each.name])
    return _inputs_of_subclass(model)


def _inputs_of_subclass(model):
    """As `_inputs_of`, of a model with a `call` of its own: its arguments, or what it was given."""
    parameters = inspect.signature(model.call).parameters.values()
    parameters = [p for p in parameters if p.name not in ("self", "training", "mask")]
    named = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    needed = [p.name for p in named if p.default is p.empty]
    known = {name for names in ROLES.values() for name in names}
    optional = [p.name for p in named if p.default is not p.empty and p.name in known]
    if len(needed) + len(optional) > 1:
        inputs = [InputOfModel(name) for name in (*needed, *optional)]
        return inputs, lambda values: model(**values)
    shapes = (model.get_build_config() or {}).get("input_shape")
    if isinstance(shapes, dict):
        inputs = [InputOfModel(name, tuple(shape)) for name, shape in shapes.items()]
        return inputs, lambda values: model(values)
    if shapes is not None and any(isinstance(size, (list, tuple)) for size in shapes):
        inputs = [InputOfModel(f"{needed[0]}[{i}]", tuple(x)) for i, x in enumerate(shapes)]
        return inputs, lambda values: model([values[each.name] for each in inputs])
    each = InputOfModel(needed[0], None if shapes is None else tuple(shapes))
    return [each], lambda values: model(values[each.name])


def _roles_of(inputs, names=None):
    """Return the inputs by role, a dict; `names` are those that the caller gives."""
    for each in inputs:
        if each.dtype == "string":
            raise ValueError(
                "`model` must read token ids; Keras's `model.export(path)` writes one that reads "
                f"strings. Received: the input {each} with strings."
            )
    if names is not None:
        check_that(isinstance(names, dict), "a dict of names of inputs by role", inputs=names)
        wanted = f"a dict with keys among {', '.join(map(repr, ROLES))}"
        check_that(set(names) <= set(ROLES), wanted, inputs=names)
        by_name = {each.name: each for each in inputs}
        wanted = f"a dict with values among {', '.join(map(repr, by_name))}"
        check_that(set(names.values()) <= set(by_name), wanted, inputs=names)
        roles = {role: by_name[name] for role, name in names.items()}
    else:
        roles = {}
        for role, known in ROLES.items():
            roles |= {role: each for each in inputs if each.name in known}
        rest = [each for each in inputs if each not in roles.values()]
        for each in rest:
            roles.setdefault(_role_by_shape(each, len(inputs) == 1), each)
    unknown = [each for each in inputs if each not in roles.values()]
    if unknown or "token_ids" not in roles or None in roles:
        raise ValueError(
            "`inputs` must name the input of the model for each of 'token_ids', of shape (batch, "
            "length), and "
            f"{', '.join(map(repr, list(ROLES)[1:]))}, as {{'token_ids': 'words'}}; Keras's "
            "`model.export(path)` writes a model that reads anything else. "
            f"Received: inputs={names}, of a model of {', '.join(map(str, inputs))}."
        )
    return roles


def _role_by_shape(each, is_only):
    """Return the role of an input whose name says nothing, or None."""
    if each.shape is None:
        return "token_ids" if is_only else None
    if each.dtype == "bool":
        return "padding_mask"
    return {1: "lengths", 2: "token_ids"}.get(len(each.shape))
