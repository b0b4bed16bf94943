"""Base class of the tokenizers: text to padded ids and back, in a TensorFlow graph or in Python."""

import os
import sys
import warnings
from importlib import metadata

import keras
import numpy as np

from keras_attn.files import atomic_file
from keras_attn.ops.checks import check_paths
from keras_attn.text.tokenizers.layer import TokenizerLayer
from keras_attn.text.tokenizers.operations import pad, tf
from keras_attn.text.tokenizers.template import Template
from keras_attn.text.tokenizers.vocabularies import (
    REPLACEMENT,
    read_config,
    writable,
    write_config,
)

_Module = object if tf is None else tf.Module  # an export then holds the tokenizer's tables


class Tokenizer(_Module):
    """Ids of the special tokens, and padded batches of ids.

        encode: "a b" -> [a, b, eos, pad, ...]        decode: [a, b, eos, ...] -> "a b"
        encode(end=False): "a b" -> [a, b, pad, ...], a prompt
        encode_pair: "a", "b" -> [cls, a, sep, b, sep, pad, ...]

    On TensorFlow `encode`, `decode` and `tokens` are graph operations on a string tensor (B,), so a
    `tf.function` that calls a tokenizer exports as one graph from text to text. On other backends
    they take and return NumPy arrays, and TensorFlow is not needed. `encode_as_lists` and
    `decode_as_strings` compute the same in Python everywhere. Called with a `keras.Input` of
    strings, a tokenizer is a layer of a Keras model, which it is saved and exported with.

    A subclass sets `vocabulary_size` and defines `_split` (string tensor to ragged ids without
    special tokens), `_join` (its inverse), `_split_in_python` (list of str or bytes to a list of
    int32 arrays), `_join_in_python` (list of ids to str), `_surfaces` (each id's text as bytes),
    `vocabulary`, and `get_config` or `to_bytes` and `from_bytes`. It may set the ids below and
    `template` on the instance.

    Attributes:
        vocabulary_size: int. Number of ids V.
        pad_id, unk_id, bos_id, eos_id: ints or None. Ids of padding, of unknown text, of the first
            and of the last token. Without `pad_id` rows are padded with `eos_id`.
        template: a `Template`. The special tokens around a text or a pair.
        max_length: int. Most tokens that `encode` returns for a text; None for no limit.
        default_special_tokens: tuple of str. The texts of these four ids in a vocabulary that this
            library learns.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 5.1.
    """

    pad_id = 0
    unk_id = 1
    bos_id = 2
    eos_id = 3
    default_special_tokens = ("<pad>", "<unk>", "<s>", "</s>")
    template = Template(middle=(3,), end=(3,))
    max_length = None
    packages = ()  # that a subclass tokenizes with in Python

    @property
    def tool(self):
        """Versions of what `encode_as_lists` tokenizes with, by package; texts may depend on it."""
        library = __name__.partition(".")[0]
        versions = {name: metadata.version(name) for name in self.packages}
        return {library: sys.modules[library].__version__, **versions}

    def __call__(self, text, max_length=None):
        """Turn strings into padded ids in a Keras model, on TensorFlow.

        Args:
            text: `keras.Input((), dtype="string")`, another symbolic tensor of strings (B,) or
                (B, 1), or strings as `encode` takes them.
            max_length: int. As in `encode`.

        Returns:
            The ids of `encode`, int32 (B, T), of at least one column, with Keras's mask: True at
            the tokens before each row's end. An embedding replaces it by its own. That of
            `keras.layers.Embedding(mask_zero=True)` is right for a tokenizer that pads with 0,
            that of `keras_attn.layers.TokenEmbedding(pad_id=tokenizer.fill_id)` for each.

        Raises:
            ValueError: if `text` is no batch of strings, or on another backend.

        Example:
            >>> import keras, keras_attn
            >>> tokenizer = keras_attn.text.Characters("abc")
            >>> text = keras.Input((), dtype="string")
            >>> x = keras.layers.Embedding(7, 5, mask_zero=True)(tokenizer(text))
            >>> x = keras.layers.GlobalAveragePooling1D()(x)
            >>> model = keras.Model(text, keras.layers.Dense(2)(x))
            >>> model(keras.ops.convert_to_tensor(["cab", "a"])).shape
            TensorShape([2, 2])
        """
        layer = TokenizerLayer(self, max_length)  # refuses other backends
        if self.fill_id != 0 and keras.utils.is_keras_tensor(text):
            warnings.warn(
                f"{type(self).__name__} pads with the id {self.fill_id}, while "
                "`keras.layers.Embedding(mask_zero=True)` masks the id 0: embed the ids by "
                f"`keras_attn.layers.TokenEmbedding(..., pad_id={self.fill_id})`, or give the "
                f"layers that read a mask `mask=keras.ops.not_equal(ids, {self.fill_id})`.",
                stacklevel=2,
            )
        if not (tf.is_tensor(text) or keras.utils.is_keras_tensor(text)):
            text = tf.constant(check_strings(text=text), tf.string)
        return layer(text)

    def encode(self, text, max_length=None, end=True):
        """Turn a batch of strings into padded ids, each row with the tokens of `template`.

        Args:
            text: string tensor or list of strings (B,), or a tensor of one string, as
                `Dataset.map` has it. An empty string becomes [eos]; characters outside the
                vocabulary, lone surrogates and bytes that are not UTF-8 become `unk_id`.
            max_length: int. Longest row, special tokens included; a longer sentence loses its end.
            end: bool. False leaves out the tokens after the text: for a prompt, which a causal
                model continues.

        Returns:
            ids: int32 (B, T), padded with `pad_id`.
            lengths: int32 (B,), special tokens included.
            Of one string (T,) and ().

        Raises:
            ValueError: if `max_length` is too small for the special tokens.
        """
        if _is_scalar(text):
            ids, lengths = self.encode(text[None], max_length, end)
            return ids[0], lengths[0]
        return pad(self.template.around(self._rows(text=text), max_length, end), self.fill_id)

    def encode_pair(self, first, second, max_length=None):
        """Turn two batches of strings into padded rows, each with one text of both.

        Args:
            first, second: string tensors or lists of strings (B,), or tensors of one string.
            max_length: int. Longest row, special tokens included. In a longer pair the longer text
                loses its end until both are equally long, then both lose theirs.

        Returns:
            ids: int32 (B, T), padded with `pad_id`.
            lengths: int32 (B,), special tokens included.
            segment_ids: int32 (B, T), `template.second_segment` at the second text, else 0.
            Of one pair (T,), () and (T,).

        Raises:
            ValueError: if `max_length` is too small for the special tokens.
        """
        if _is_scalar(first) and _is_scalar(second):
            return tuple(x[0] for x in self.encode_pair(first[None], second[None], max_length))
        texts = self._rows(first=first), self._rows(second=second)
        numbers = [text.shape[0] if hasattr(text, "shape") else len(text) for text in texts]
        if None not in numbers and numbers[0] != numbers[1]:
            raise ValueError(
                "`first` and `second` must have the same number of strings. "
                f"Received: {numbers[0]} and {numbers[1]}."
            )
        ids, segments = self.template.around_pair(*texts, max_length)
        return *pad(ids, self.fill_id), pad(segments, 0)[0]

    def _rows(self, **argument):
        """Return the rows of ids of strings, without special tokens."""
        ((name, text),) = argument.items()
        if not (tf is not None and tf.is_tensor(text)):
            text = check_strings(**argument)
        elif text.shape.rank not in (1, None):
            shape = tuple(text.shape)
            raise ValueError(
                f"`{name}` must be strings of shape (batch,). Received: shape={shape}."
            )
        if tf is None:
            return self._split_in_python(text)
        return self._split(tf.convert_to_tensor(text, tf.string))

    @property
    def fill_id(self):
        """The id after the end of a row: `pad_id`, or without it `eos_id`."""
        return (self.eos_id or 0) if self.pad_id is None else self.pad_id

    def for_sources(self):
        """Return the tokenizer whose `decode` and `tokens` read the ids that `encode` gives.

        It is another one only where targets have a vocabulary of their own.
        """
        return self

    def decode(self, ids):
        """Turn rows of ids into strings, reading each up to its first `eos_id`.

        Args:
            ids: integer tensor (B, T). Special tokens are dropped; `unk_id`, and ids outside the
                vocabulary, are written as U+FFFD.

        Returns:
            String tensor (B,); on other backends than TensorFlow a NumPy array of bytes.
        """
        if tf is None:
            return np.array([text.encode() for text in self.decode_as_strings(ids)], object)
        ids = tf.convert_to_tensor(ids)
        if ids.shape.rank not in (2, None) or not ids.dtype.is_integer:
            raise ValueError(
                "`ids` must be integers of shape (batch, length). "
                f"Received: shape={tuple(ids.shape)}, dtype={ids.dtype.name}."
            )
        ids = self._known(tf.cast(ids, tf.int32))
        return self._join(tf.ragged.boolean_mask(ids, self._is_text(ids)))

    def tokens(self, ids):
        """Turn each id into its text.

        Args:
            ids: integer tensor.

        Returns:
            String tensor of the shape of `ids`: empty for `pad_id`, `bos_id` and `eos_id`, U+FFFD
            for `unk_id` and ids outside the vocabulary. The texts of a row, joined, are the result
            of `decode`, which removes the space that SentencePiece puts before the first word.
        """
        if tf is None:
            return self._surfaces[self._known(np.asarray(ids))]
        return tf.gather(tf.constant(self._surfaces), self._known(tf.cast(ids, tf.int32)))

    def encode_as_lists(self, sentences):
        """Turn Python strings into one int32 array each, without special tokens."""
        return self._split_in_python(check_strings(sentences=sentences))

    def decode_as_strings(self, ids):
        """Turn rows of ids into a list of str, as `decode` does; rows may differ in length."""
        rows = [np.asarray(row) for row in ids]
        for row in rows:
            if row.ndim != 1 or row.size and row.dtype.kind not in "iu":
                raise ValueError(f"`ids` must be rows of integers. Received: a row {row!r}.")
        return [self._join_in_python(self._text_ids(row.astype(int))) for row in rows]

    def _text_ids(self, row):
        row = self._known(row)
        return row[self._is_text(row)].tolist()

    def _is_text(self, ids):
        """Return True at the ids before `eos_id` that are neither padding nor the first token."""
        # An id that a tokenizer lacks is compared as -1, which no known id is.
        pad, bos, eos = (-1 if i is None else i for i in (self.pad_id, self.bos_id, self.eos_id))
        if isinstance(ids, np.ndarray):
            ends = np.cumsum(ids == eos)
        else:
            ends = tf.cumsum(tf.cast(ids == eos, tf.int32), axis=1)
        return (ends == 0) & (ids != pad) & (ids != bos)

    def _known(self, ids):
        """Replace ids outside the vocabulary by `unk_id`, or by V if the tokenizer has none."""
        where = tf.where if tf is not None and tf.is_tensor(ids) else np.where
        unknown = self.vocabulary_size if self.unk_id is None else self.unk_id
        return where((ids >= 0) & (ids < self.vocabulary_size), ids, unknown)

    def _surfaces_of(self, texts):
        """Return the text of each id as bytes, from those of all ids but the special tokens."""
        number = len(self.default_special_tokens)
        special = [REPLACEMENT if i == self.unk_id else "" for i in range(number)]
        return np.array([text.encode() for text in [*special, *texts]], object)

    def vocabulary(self):
        """Return the texts of all ids, a list of V strings."""
        raise NotImplementedError(f"{type(self).__name__} must define `vocabulary`.")

    def get_config(self):
        """Return the arguments of the constructor: numbers, strings, bytes, and lists of them."""
        raise NotImplementedError(f"{type(self).__name__} must define `get_config`.")

    def to_bytes(self):
        """Return the content of the file that `save` writes."""
        return write_config(type(self).__name__, self.get_config())

    @classmethod
    def from_bytes(cls, content):
        """Return the tokenizer of a file's content; raise ValueError if it holds none."""
        config = read_config(cls.__name__, content)
        try:
            return cls(**config)
        except TypeError as error:
            raise ValueError(f"The file of a {cls.__name__} is damaged: {error}.") from error

    def changed_attributes(self):
        """Return what an instance may set besides the arguments of its class, a dict by name."""
        names = "pad_id", "unk_id", "bos_id", "eos_id", "template"
        return {name: vars(self)[name] for name in names if name in vars(self)}

    def __reduce__(self):
        # As a file holds it: TensorFlow's tables cannot be pickled.
        return type(self).from_bytes, (self.to_bytes(),), self.changed_attributes()

    def __repr__(self):
        return f"<{type(self).__name__}, vocabulary_size={self.vocabulary_size}>"

    def save(self, path):
        """Write the tokenizer to the file `path`, which appears complete or not at all."""
        check_paths(path=path)
        with atomic_file(path) as temporary, open(temporary, "wb") as file:
            file.write(self.to_bytes())

    @classmethod
    def load(cls, path):
        """Read a tokenizer that `save` wrote.

        Raises:
            ValueError: if there is no such file, or it holds something else.
        """
        content = read_file(path)
        try:
            return cls.from_bytes(content)
        except ValueError as error:
            raise ValueError(f"{error} Received: path={os.fspath(path)!r}") from error


def _is_scalar(text):
    """Return True for a string tensor without axes."""
    return tf is not None and tf.is_tensor(text) and text.shape.rank == 0


def check_no_string(**argument):
    """Refuse one string where an iterable of strings is meant: its items are characters."""
    ((name, texts),) = argument.items()
    if isinstance(texts, (str, bytes)):
        raise ValueError(
            f"`{name}` must be an iterable of strings, such as a list or an open file. "
            f"Received: {name}={_short(texts)}."
        )


def check_strings(**argument):
    """Return an iterable of strings as a list; refuse one string and anything else."""
    ((name, texts),) = argument.items()
    if tf is None and type(texts).__module__.startswith("tensorflow"):
        raise ValueError(
            "Tokenizers run in TensorFlow's graphs and datasets with KERAS_BACKEND=tensorflow; "
            f"here `{name}` must be a list of strings. Received: {name}={_short(texts)}."
        )
    items = None if isinstance(texts, (str, bytes)) or not hasattr(texts, "__iter__") else [*texts]
    if items is None or not all(isinstance(text, (str, bytes)) for text in items):
        raise ValueError(f"`{name}` must be a list of strings. Received: {name}={_short(texts)}.")
    return [writable(text) if isinstance(text, str) else text for text in items]


def _short(value):
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def read_file(path):
    """Return the bytes of a tokenizer's file; raise ValueError if there is none."""
    check_paths(path=path)
    if not os.path.isfile(path):
        raise ValueError(f"There is no tokenizer file. Received: path={os.fspath(path)!r}")
    with open(path, "rb") as file:
        return file.read()
