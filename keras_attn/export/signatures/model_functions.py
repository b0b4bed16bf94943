"""The base class of the functions of a model, and the inputs that they share."""

import tensorflow as tf

from keras_attn.export.checks import check_padding
from keras_attn.generation.decoding import end_tokens
from keras_attn.text.tokenizers.tokenizer import Tokenizer

# Decorator of functions of a batch of strings.
of_text = tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string, "text")])


def of_ids(ids="token_ids", lengths="lengths"):
    """Return a decorator of functions of ids (B, T) and lengths (B,) under these names."""
    specs = [tf.TensorSpec([None, None], tf.int32, ids), tf.TensorSpec([None], tf.int32, lengths)]
    return tf.function(autograph=False, input_signature=specs)


class ModelFunctions:
    """Graph functions of a model, with the weights and tokenizers that they read.

    A subclass defines `signatures`, and sets its `tokenizer`. An instance has the function
    `halting` if its model has an `ACT`.
    """

    halting = tokenizer = None

    def __init__(self, model, *others):
        # Only the weights: tracking a model would export its optimizer too.
        self.weights = [weight.value for each in (model, *others) for weight in each.weights]
        embedding = getattr(model, "embedding", None)  # of what is read
        self._vocabulary_size = getattr(embedding, "vocabulary_size", None)

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
        """Return the ids (B, T) of a request with padding beyond `lengths` (B,).

        More than `max_length` ids in a row, or one outside the vocabulary, are an error.
        """
        if max_length is not None:
            width = tf.shape(token_ids)[1]
            message = f"A row must have at most {max_length} ids, the model's positions. Received:"
            token_ids = require(token_ids, width <= max_length, message, width)
        return self.known_ids(mask_ids(token_ids, lengths, pad_id))

    def reader(self, model):
        """Return `read_ids` with the padding and the positions of a model, of ids and lengths."""
        pad_id = check_padding(model)
        return lambda *ids: self.read_ids(*ids, pad_id, model.max_length)

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
    found = tf.reduce_min(values), tf.reduce_max(values)
    is_within = tf.reduce_all((values >= 0) & (values < count))
    return require(values, is_within, message, *found)


def length_mask(rows, lengths):
    """Return a bool mask (B, T), True at the first `lengths` (B,) steps of `rows` (B, T, ...).

    Lengths that are not a number in [0, T] for each row are an error, also inside a graph.
    """
    size = tf.shape(rows)
    is_one_each = tf.equal(tf.shape(lengths)[0], size[0])
    are_within = tf.reduce_all((lengths >= 0) & (lengths <= size[1]))
    message = "lengths must be one number for each row, from 0 to its width. Received: lengths"
    found = message, lengths, "rows of shape", size
    return tf.sequence_mask(require(lengths, is_one_each & are_within, *found), size[1])


def mask_ids(token_ids, lengths, pad_id=0):
    """Set the ids (B, T) beyond `lengths` (B,) to the id of padding."""
    return tf.where(length_mask(token_ids, lengths), token_ids, pad_id)


def ends_of(eos_id, tokenizer=None):
    """Return a tuple of the tokens that end a sequence; for None that of the tokenizer, or 3."""
    default = getattr(tokenizer, "eos_id", Tokenizer.eos_id)
    return end_tokens(default if eos_id is None else eos_id)


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
    return tf.where(is_empty[:, None], pad_id, ids), tf.where(is_empty, 0.0, score)
