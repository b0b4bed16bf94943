"""The base class of the functions of a model, their inputs, and the signature `halting`."""

import dataclasses
import functools
import types
import warnings

import tensorflow as tf

from keras_attn.compat.keras_masks import set_keras_mask
from keras_attn.export.checks import check_backend
from keras_attn.models.model import Model
from keras_attn.ops.checks import check_that


class GraphMethod:
    """Method that is a `tf.function` of its object, and keeps it alive.

    `tf.function` as the decorator of a method refers to the object weakly, so that a call such as
    `Translator(...).text(texts)` would find it gone.
    """

    def __init__(self, method, input_signature):
        functools.update_wrapper(self, method)
        self.input_signature = input_signature

    def __get__(self, functions, owner=None):
        if functions is None:
            return self
        method = types.MethodType(self.__wrapped__, functions)
        function = tf.function(method, self.input_signature, autograph=False)
        vars(functions)[self.__name__] = function  # found before this object from now on
        return function


_TEXT = [tf.TensorSpec([None], tf.string, "text")]
# For functions of a batch of strings, and a decorator of such methods.
text_function = tf.function(autograph=False, input_signature=_TEXT)
text_method = functools.partial(GraphMethod, input_signature=_TEXT)


def ids_signature(ids="token_ids", lengths="lengths"):
    """Return the specifications of ids (B, T) and lengths (B,) of these names."""
    return [tf.TensorSpec([None, None], tf.int32, ids), tf.TensorSpec([None], tf.int32, lengths)]


def ids_function(function, *names):
    """Return the `tf.function` of a function of ids (B, T) and lengths (B,)."""
    return tf.function(function, ids_signature(*names), autograph=False)


def ids_method(*names):
    """Return a decorator of methods of ids (B, T) and lengths (B,)."""
    return functools.partial(GraphMethod, input_signature=ids_signature(*names))


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """The arguments of `saved_model` that decide about the signatures of a model."""

    tokenizer: object = None
    strategy: object = None
    max_length: int = 64
    max_source_length: int = 1024
    eos_id: int | list | None = None
    bos_id: int | None = None
    labels: list | None = None
    stream: bool = False
    buckets: object = None
    kind: str | dict | None = None
    inputs: dict | None = None
    from_logits: bool | dict | None = None
    horizon: int | None = None

    @property
    def decoding(self):
        """The arguments of a class that decodes: strategy, both lengths and the end tokens."""
        strategy = "greedy" if self.strategy is None else self.strategy
        return strategy, self.max_length, self.max_source_length, self.eos_id

    def check_no_text(self, kind):
        """Refuse a tokenizer and a strategy, for a kind of model that reads no text."""
        if self.tokenizer is not None:
            raise ValueError(
                f"{kind} reads no text: export it without a `tokenizer`. "
                f"Received: tokenizer={self.tokenizer!r}."
            )
        self.check_no_strategy()

    def check_no_strategy(self):
        """Refuse a strategy, for a model that does not decode."""
        wanted = "None for a model that does not decode"
        check_that(self.strategy is None, wanted, strategy=self.strategy)


class ModelFunctions:
    """Graph functions of a model, with the weights and tokenizers that they read.

    A subclass defines `signatures`, and sets its `tokenizer`. An instance has the function
    `halting` if its model has an `ACT`. `saved_model` takes the first class that `fits`.

    Attributes:
        decodes: bool. True if `ids` generates with a strategy, which XLA can compile.
        has_labels: bool. True if the functions give the names of classes.
        series: dict of how series are read, `context_length` and `horizon`, or None.
        has_horizon: bool. True if they forecast as many values as are asked for.
    """

    halting = tokenizer = series = None
    decodes = has_labels = has_horizon = False

    def __init__(self, model, *others):
        check_backend()
        # Only the weights: tracking a model would export its optimizer too.
        self.weights = [weight.value for each in (model, *others) for weight in each.weights]
        embedding = getattr(model, "embedding", None)  # of what is read
        self._vocabulary_size = getattr(embedding, "vocabulary_size", None)

    @classmethod
    def fits(cls, model, options):
        """Return True if these are the signatures of a model with the `ExportOptions`."""
        raise NotImplementedError(f"{cls.__name__} must define `fits`.")

    @classmethod
    def from_options(cls, model, options):
        """Return the functions of a model that fits, with the `ExportOptions`."""
        raise NotImplementedError(f"{cls.__name__} must define `from_options`.")

    def make_resources(self):
        """Return a module of what the functions read, for `tf.saved_model.save` to track."""
        resources = tf.Module()
        resources.weights, resources.tokenizer = self.weights, self.tokenizer
        return resources

    @property
    def signatures(self):
        """The functions of an export, a dict by signature name with a "serving_default"."""
        raise NotImplementedError(f"{type(self).__name__} must define `signatures`.")

    @property
    def halting_signatures(self):
        """The signature of the steps of each token, a dict that is empty without an `ACT`."""
        return {} if self.halting is None else {"halting": self.halting}

    def read_ids(self, token_ids, lengths, pad_id=0, max_length=None):
        """Return the ids (B, T) of a request with padding beyond `lengths` (B,), as `mask_ids`.

        More than `max_length` ids in a row, or one outside the vocabulary, are an error.
        """
        if max_length is not None:
            width = tf.shape(token_ids)[1]
            message = f"A row must have at most {max_length} ids, the model's positions. Received:"
            token_ids = require(token_ids, width <= max_length, message, width)
        known = self.known_ids(mask_ids(token_ids, lengths, pad_id or 0))
        # The check makes another tensor, which has no mask.
        return mask_ids(known, lengths, None) if pad_id is None else known

    def reader(self, model):
        """Return `read_ids` with the padding and the positions of a model, of ids and lengths."""
        return lambda *ids: self.read_ids(*ids, model.pad_id, model.max_length)

    def known_ids(self, token_ids):
        """Return the ids of a request; one outside the vocabulary is an error."""
        if self._vocabulary_size is None:
            return token_ids
        return check_range(token_ids, self._vocabulary_size, "Ids of tokens")


def require(x, condition, *message):
    """Return a tensor; a condition that does not hold is an error, also inside a graph."""
    with tf.control_dependencies([tf.debugging.Assert(condition, message, summarize=32)]):
        return tf.identity(x)


def check_range(values, count, name):
    """Return integers; one outside [0, count) is an error, also inside a graph."""
    # A gather reads negative ones from the end, and on a GPU it reads zeros beyond the end.
    message = f"{name} must be in [0, {count}). Received: least and greatest"
    least, greatest = tf.reduce_min(values), tf.reduce_max(values)
    is_within = tf.reduce_all((values >= 0) & (values < count))
    # ONNX drops the check.
    return require(nearest(values, count), is_within, message, least, greatest)


def nearest(values, count):
    """Return integers, of those outside [0, count) the nearest one inside."""
    return tf.clip_by_value(values, 0, count - 1)


def nearest_ids(token_ids, embedding):
    """Return ids clipped to those of an embedding, which may have any number of them."""
    count = getattr(embedding, "vocabulary_size", None)
    return token_ids if count is None else nearest(token_ids, count)


def series_spec(model):
    """Return the `TensorSpec` of the series that a model reads, of any length."""
    return tf.TensorSpec([None, None, *model.inputs[0].shape[2:]], tf.float32, "values")


def checked_series(values):
    """Return series (B, T, ...); infinite values and rows without values are an error."""
    message = "values must be finite, or NaN where one is missing. Received: least and greatest"
    known = tf.where(tf.math.is_nan(values), 0.0, values)
    extremes = tf.reduce_min(known), tf.reduce_max(known)
    values = require(values, tf.reduce_all(tf.abs(known) < float("inf")), message, *extremes)
    shape = tf.shape(values)
    message = "values must have one time at least. Received: shape"
    return require(values, shape[1] > 0, message, shape)


def length_mask(rows, lengths):
    """Return a bool mask (B, T), True at the first `lengths` (B,) steps of `rows` (B, T, ...).

    Lengths that are not a number in [0, T] for each row are an error, also inside a graph.
    """
    size = tf.shape(rows)
    is_one_each = tf.equal(tf.shape(lengths)[0], size[0])
    are_within = tf.reduce_all((lengths >= 0) & (lengths <= size[1]))
    message = "lengths must be one number for each row, from 0 to its width. Received: lengths"
    is_right = is_one_each & are_within
    lengths = require(lengths, is_right, message, lengths, "rows of shape", size)
    return tf.sequence_mask(lengths, size[1])


def mask_ids(token_ids, lengths, pad_id=0):
    """Set the ids (B, T) beyond `lengths` (B,) to the id of padding.

    For a model without one, None, they are 0 and left out by Keras's mask of the ids.
    """
    mask = length_mask(token_ids, lengths)
    ids = tf.where(mask, token_ids, pad_id or 0)
    if pad_id is None:
        set_keras_mask(ids, mask)
    return ids


def call_masked(model, inputs):
    """Return the outputs of a functional model, whose layers read Keras's masks of its inputs."""
    with warnings.catch_warnings():
        # Keras warns that it gives the outputs no mask, which nothing reads.
        warnings.filterwarnings("ignore", ".*does not support masking")
        return model(inputs)


def end_signature(ends):
    """Return the function `end_tokens` of a model that a client runs step by step."""

    def end_tokens(batch_size):
        """Return `token_ids` [B, E]: the tokens that end each of `batch_size` rows, or -1."""
        return {"token_ids": tf.tile(tf.constant([ends], tf.int32), [batch_size, 1])}

    rows = [tf.TensorSpec([], tf.int32, "batch_size")]
    return tf.function(end_tokens, rows, autograph=False)


def unify_ends(ids, ends, eos_id):
    """Replace every token of `ends` by `eos_id`, at which a tokenizer ends a text."""
    for token in ends:
        ids = ids if token == eos_id else tf.where(ids == token, eos_id, ids)
    return ids


def blank_rows(is_empty, ids, score, pad_id=0):
    """Replace the ids (B, L) of empty rows by padding, and their scores (B,) by 0."""
    return tf.where(tf.expand_dims(is_empty, 1), pad_id, ids), tf.where(is_empty, 0.0, score)


def halting_function(model):
    """Return the method `halting` of a model with padding and an `ACT`; None for any other."""
    has_halting = isinstance(model, Model) and model.halting_depths and model.pad_id is not None
    return model.halting if has_halting else None


def token_halting(halting, token_ids, lengths, pad_id, name="token_ids"):
    """Return `steps` int32 and `remainders` float32, (B, T), of a model that reads ids alone.

    The `token_ids` beyond `lengths` are padding.
    """
    is_valid = length_mask(token_ids, lengths)
    # One more column: a row of no token has a first one.
    read = tf.pad(token_ids, [[0, 0], [0, 1]], constant_values=pad_id)
    (outcome,) = halting({name: read}).values()
    return halting_outputs(outcome, is_valid)


def halting_of_ids(model, read):
    """Return the function of ids and lengths that gives their `token_halting`, or None.

    `read` maps them to the ids that the model reads. A model without an `ACT` has no halting.
    """
    halting = halting_function(model)
    if halting is None:
        return None
    return lambda token_ids, lengths: token_halting(
        halting, read(token_ids, lengths), lengths, model.pad_id
    )


def halting_outputs(halting, is_valid, prefix=""):
    """Return the outputs of a `Halting` of as many positions or more, 0 at tokens that are none."""
    width = tf.shape(is_valid)[1]
    steps, remainders = halting.steps[:, :width], halting.remainder[:, :width]
    return {
        f"{prefix}steps": tf.where(is_valid, steps, 0),
        f"{prefix}remainders": tf.where(is_valid, tf.cast(remainders, tf.float32), 0.0),
    }
