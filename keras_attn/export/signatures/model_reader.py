"""Inputs and outputs of a Keras model of one's own, which reads ids."""

import contextlib
import dataclasses
import inspect
import re

import keras
import numpy as np
import tensorflow as tf

from keras_attn.compat.keras_layers import flatten_layers
from keras_attn.export.checks import check_is_tokenizer, length_beyond_windows
from keras_attn.export.signatures.model_functions import length_mask
from keras_attn.models.model import Model, num_ids
from keras_attn.ops.checks import check_that

# The names of the inputs of models, by what a text gives for them.
ROLES = {
    "token_ids": ("token_ids", "input_ids", "ids", "tokens", "input_word_ids"),
    "segment_ids": ("segment_ids", "token_type_ids", "input_type_ids"),
    "padding_mask": ("padding_mask", "attention_mask", "mask", "input_mask"),
    "lengths": ("lengths",),
    "position_ids": ("position_ids", "positions"),
}
# Outputs of a row, alone and with padding: relative to their greatest magnitude, by the dtype.
TOLERANCES = {"float16": 0.02, "bfloat16": 0.1}
_TOLERANCE = 1e-4  # of other dtypes
_NUM_ROWS, _NUM_IDS, _NUM_PADDING = 17, 5, 4  # of rows that are compared with themselves


def describe_output(name):
    """Return the subject of a sentence about an output of a model."""
    return "The model's output" if name is None else f"The model's output {name!r}"


def is_functional(model):
    """Return True for a model of a graph of layers, with its own inputs and outputs."""
    has_graph = hasattr(model, "operations") and hasattr(model, "inputs")
    return has_graph and not isinstance(model, keras.Sequential)


def reads_series(model):
    """Return True for a model of one's own with one input, of floats and named "values"."""
    if not isinstance(model, keras.Model) or isinstance(model, Model):
        return False
    inputs = keras.tree.flatten(getattr(model, "inputs", None) or [])
    return [x.name for x in inputs] == ["values"] and "float" in inputs[0].dtype


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


class NeedsFixedLength(ValueError):
    """A model cannot read rows of any number of ids, or padding changes what it makes of them."""


@dataclasses.dataclass(frozen=True)
class ModelInput:
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
        roles: dict of the model's inputs, a `ModelInput` for each role.
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
        except NeedsFixedLength:
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
        padding = [[0, 0], [0, columns - width]]
        is_token = length_mask(tf.pad(token_ids, padding), lengths)
        token_ids = tf.where(is_token, tf.pad(token_ids, padding), self.pad_id)
        segments = tf.zeros_like(token_ids)
        if segment_ids is not None:
            segments = tf.pad(segment_ids, padding)
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
    def errors_of_call(self, rows, length):
        """Turn an error of a call with ids (rows, length) into one that names the arguments."""
        try:
            yield
        except (TypeError, KeyError, ValueError, tf.errors.OpError) as error:
            names = ", ".join(f"{role} as {x}" for role, x in self.roles.items())
            raise NeedsFixedLength(
                f"`model` must read ids of shape ({rows}, {length}): `inputs` names its inputs, "
                "and `max_source_length`, of `TextModel` `max_length`, is the most ids in a row. "
                f"Received: at most {self.max_length} ids in a row, {names}, and {_cause(error)}"
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

        def reads_ids(x):
            if tf.is_symbolic_tensor(x) or np.ndim(x) != 2:
                return False
            return np.array_equal(np.asarray(x)[:, : ids.shape[1]], ids)

        readers = [layer for layer, x in read if reads_ids(x)]
        # A `call` that is a `tf.function` shows no numbers: an only embedding is that of the ids;
        # of several, any may be that of positions, so the vocabulary is unknown.
        symbolic = {id(layer): layer for layer, x in read if tf.is_symbolic_tensor(x)}
        return list(symbolic.values()) if not readers and len(symbolic) == 1 else readers

    def _arrays(self, rows, width=0):
        """Return the outputs of rows of ids, lists, padded to a width, as arrays by name."""
        lengths = [len(row) for row in rows]
        ids = np.full((len(rows), max(*lengths, width)), self.pad_id, "int32")
        for padded, row in zip(ids, rows, strict=True):
            padded[: len(row)] = row
        with self.errors_of_call(*ids.shape):
            outputs = self.predict(tf.constant(ids), tf.constant(lengths))
        return {name: x.numpy() for name, x in outputs.items()}

    def _random_rows(self, length):
        """Return rows of ids that are no padding."""
        known = [i for i in range(1, min(self.vocabulary_size or 2, 1000)) if i != self.pad_id]
        size = _NUM_ROWS, min(length, self.max_length)
        return np.random.default_rng(length).choice(known or [0], size).tolist()

    def _examples(self):
        """Return outputs of some rows; raise a `ValueError` if the rest of a batch changes them."""
        rows = self._random_rows(_NUM_IDS)
        length = len(rows[0])
        outputs, again, alone = self._arrays(rows), self._arrays(rows), self._arrays(rows[:1])
        for name, x in outputs.items():
            is_of_rows = x.ndim in (1, 2, 3) and len(x) == len(rows)
            if not is_of_rows or x.ndim == 3 and x.shape[1] != length:
                shape = ", ".join(map(str, ("batch", *x.shape[1:])))
                raise ValueError(
                    f"{describe_output(name)} must have the shape (batch,), (batch, classes) or "
                    "(batch, length, classes): pool it, or leave it out by `keras.Model`. "
                    f"Received: shape=({shape}) for {length} ids in a row."
                )
            if self._difference(x, again[name]) > 0:
                raise ValueError(
                    f"{describe_output(name)} must be the same for the same ids: let `training` of "
                    "`call` be None or False by default. Received: other numbers in a second call."
                )
            if (difference := self._difference(x[:1], alone[name])) > 0:
                raise ValueError(
                    f"{describe_output(name)} must not depend on the other rows of a batch: let no "
                    "layer take a mean over them, as `BatchNormalization` with `training=True`. "
                    f"Received: a difference of {difference:.2g} for a row alone."
                )
        if self.fixed_length is None:
            self._check_padding()
        return outputs

    def _check_padding(self):
        """Raise a `NeedsFixedLength` if padding changes short rows, or rows beyond each window."""
        shortest = 1
        if self._tokenizer is not None:  # without text there are the special tokens
            template = self._tokenizer.template
            shortest = max(1, len(template.start) + len(template.end))
        short = [self._random_rows(n) for n in (shortest, shortest + 1, shortest + 4)]
        self._compare_with_padding(short, _NUM_IDS + _NUM_PADDING)
        beyond = length_beyond_windows(self._model, least=0)
        if beyond > _NUM_IDS:
            few = [rows[:2] for rows in short]  # of long rows a model may need much memory
            self._compare_with_padding(few, beyond)
            self._compare_with_padding([self._random_rows(beyond)[:2]], 2 * beyond)

    def _compare_with_padding(self, groups, width):
        """Compare the outputs of groups of rows, each of one length, with those of one batch."""
        outputs = self._arrays(sum(groups, []), min(width, self.max_length))
        end = 0
        for rows in groups:
            start, end = end, end + len(rows)
            for name, x in self._arrays(rows).items():
                padded = outputs[name][start:end]
                padded = padded[:, : x.shape[1]] if x.ndim == 3 else padded
                if (difference := self._difference(x, padded)) > 0:
                    raise NeedsFixedLength(
                        f"{describe_output(name)} must not depend on padding, which shorter texts "
                        "of a batch have: let each layer and the pooling read the mask of "
                        f"{self._mask_source()}, by `mask=` where a sum drops it, or an input "
                        "`padding_mask`; or read a fixed length, `keras.Input((100,))`. Received: "
                        f"a difference of {difference:.2g} by padding with the id {self.pad_id}."
                    )

    def _difference(self, expected, output):
        """Return the greatest difference of two arrays; 0 if rounding may have made it."""
        if expected.shape != output.shape:
            return np.inf
        difference = np.nan_to_num(np.abs(output - expected).max(initial=0.0), nan=np.inf)
        dtypes = {layer.compute_dtype for layer in flatten_layers(self._model)}
        tolerance = max(TOLERANCES.get(dtype, _TOLERANCE) for dtype in dtypes)
        is_small = difference <= tolerance * np.abs(expected).max(initial=1e-6)
        return 0.0 if is_small else difference

    def _mask_source(self):
        """Return what makes a mask of the ids that are no padding."""
        if self.pad_id == 0:
            return "`Embedding(mask_zero=True)`"
        return (
            f"`keras_attn.layers.TokenEmbedding(..., pad_id={self.pad_id})`, or "
            f"`mask=keras.ops.not_equal(ids, {self.pad_id})`, since `mask_zero` masks the id 0"
        )


# Of the messages of errors: lines that name the place alone.
_HEADINGS = (
    "Exception encountered",
    "Graph execution error",
    "Detected at node",
    "defined at",
    "File ",
    "<stack traces unavailable>",
)


def _cause(error):
    """Return the first line of an error that says what happened."""
    lines = [line.strip() for line in re.sub(r"\x1b\[\d*m", "", str(error)).splitlines()]
    lines = [line for line in lines if line and not line.startswith(_HEADINGS)]
    return (lines or [type(error).__name__])[0]


def _cast(tensor, dtype):
    return tensor if dtype is None else tf.cast(tensor, dtype)


@contextlib.contextmanager
def _watched(layer, read):
    """Add a layer and its first argument to the list `read` at each call, also of other threads."""
    name = "call" if getattr(layer, "quantization_mode", None) is None else "quantized_call"
    call = getattr(layer, name)

    def watch(*args, **kwargs):
        read.append((layer, (*args, *kwargs.values())[0]))
        return call(*args, **kwargs)

    own_call = vars(layer).get(name)  # of a user's patch
    setattr(layer, name, watch)
    try:
        yield
    finally:
        delattr(layer, name)
        if own_call is not None:
            setattr(layer, name, own_call)


def _inputs_of(model):
    """Return the inputs of a model, and a function that calls it with a dict of them by name."""
    if is_functional(model):
        paths = keras.tree.flatten_with_path(model.input)
        is_dict = isinstance(model.input, dict)
        inputs = [
            ModelInput(path[-1] if is_dict else x.name, tuple(x.shape), x.dtype)
            for path, x in paths
        ]

        def call(values):
            flat = [values[model_input.name] for model_input in inputs]
            return model(keras.tree.pack_sequence_as(model.input, flat))

        return inputs, call
    if isinstance(model, keras.Sequential):
        (tensor,) = model.inputs
        model_input = ModelInput(tensor.name, tuple(tensor.shape), tensor.dtype)
        return [model_input], lambda values: model(values[model_input.name])
    return _inputs_of_subclass(model)


def _inputs_of_subclass(model):
    """As `_inputs_of`, of a subclass: the arguments of `call`, or the parts of its first input."""
    parameters = inspect.signature(model.call).parameters.values()
    parameters = [p for p in parameters if p.name not in ("self", "training", "mask")]
    named = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    needed = [p.name for p in named if p.default is p.empty]
    known = {name for names in ROLES.values() for name in names}
    optional = [p.name for p in named if p.default is not p.empty and p.name in known]
    if len(needed) + len(optional) > 1:
        inputs = [ModelInput(name) for name in (*needed, *optional)]
        return inputs, lambda values: model(**values)
    shapes = (model.get_build_config() or {}).get("input_shape")
    if isinstance(shapes, dict):
        inputs = [ModelInput(name, tuple(shape)) for name, shape in shapes.items()]
        return inputs, lambda values: model(values)
    if shapes is not None and any(isinstance(size, (list, tuple)) for size in shapes):
        inputs = [ModelInput(f"{needed[0]}[{i}]", tuple(x)) for i, x in enumerate(shapes)]
        return inputs, lambda values: model([values[model_input.name] for model_input in inputs])
    model_input = ModelInput(needed[0], None if shapes is None else tuple(shapes))
    return [model_input], lambda values: model(values[model_input.name])


def _roles_of(inputs, names=None):
    """Return the inputs by role, a dict; `names` are those that the caller gives."""
    for model_input in inputs:
        if model_input.dtype == "string":
            raise ValueError(
                "`model` must read token ids; Keras's `model.export(path)` writes one that reads "
                f"strings. Received: the input {model_input} with strings."
            )
    if names is not None:
        check_that(isinstance(names, dict), "a dict of names of inputs by role", inputs=names)
        wanted = f"a dict with keys among {', '.join(map(repr, ROLES))}"
        check_that(set(names) <= set(ROLES), wanted, inputs=names)
        by_name = {model_input.name: model_input for model_input in inputs}
        wanted = f"a dict with values among {', '.join(map(repr, by_name))}"
        check_that(set(names.values()) <= set(by_name), wanted, inputs=names)
        roles = {role: by_name[name] for role, name in names.items()}
    else:
        roles = {}
        for role, known in ROLES.items():
            roles |= {role: model_input for model_input in inputs if model_input.name in known}
        rest = [model_input for model_input in inputs if model_input not in roles.values()]
        for model_input in rest:
            roles.setdefault(_role_by_shape(model_input, len(inputs) == 1), model_input)
    unknown = [model_input for model_input in inputs if model_input not in roles.values()]
    if unknown or "token_ids" not in roles or None in roles:
        raise ValueError(
            "`inputs` must name the input of the model for each of 'token_ids', of shape (batch, "
            "length), and "
            f"{', '.join(map(repr, list(ROLES)[1:]))}, as {{'token_ids': 'words'}}; Keras's "
            "`model.export(path)` writes a model that reads anything else. "
            f"Received: inputs={names}, of a model of {', '.join(map(str, inputs))}."
        )
    return roles


def _role_by_shape(model_input, is_only):
    """Return the role of an input whose name says nothing, or None."""
    if model_input.shape is None:
        return "token_ids" if is_only else None
    if model_input.dtype == "bool" and len(model_input.shape) == 2 and model_input.shape[1] != 1:
        return "padding_mask"
    return "token_ids" if len(model_input.shape) == 2 else None
