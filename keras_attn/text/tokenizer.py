import os

import numpy as np
import tensorflow as tf


def read_file(path):
    """Returns the bytes of the tokenizer file at `path`, or says that there is none."""
    if not os.path.isfile(path):
        raise ValueError(f"There is no tokenizer file. Received: path={os.fspath(path)!r}")
    with open(path, "rb") as file:
        return file.read()


class Tokenizer(tf.Module):
    """What every tokenizer shares: the ids of the marks, and padded batches in and out.

        encode: "a b" -> [a, b, eos, pad, ...]        decode: [a, b, eos, ...] -> "a b"

    Text goes in and comes out as a string tensor (B,), so a `tf.function` that calls a tokenizer
    exports as one graph from text to text. Batch and length are dynamic, and a batch may be empty.
    A subclass sets `vocabulary_size` and provides `_split` (strings to ragged ids without marks),
    `_join` (the inverse), `_surfaces` (each id's text), `vocabulary` (a list of strings in the order
    of the ids, beginning with `marks`), `to_bytes` and `from_bytes`.

    Reference: Vaswani et al., 2017 (https://arxiv.org/abs/1706.03762), section 5.1.
    """

    pad_id = 0
    unk_id = 1
    bos_id = 2
    eos_id = 3
    marks = ("<pad>", "<unk>", "<s>", "</s>")

    def encode(self, text, max_length=None):
        """Turns a batch of strings into padded ids, each row closed by `eos_id`.

        Args:
            text: string tensor (B,). An empty string becomes [eos]; what the vocabulary lacks, and
                bytes that are not UTF-8, become `unk_id`.
            max_length: int. Longest row, `eos_id` included; a longer sentence loses its end.

        Returns:
            ids: int32 (B, T), padded with `pad_id`.
            lengths: int32 (B,), `eos_id` included.

        Raises:
            ValueError: if `max_length` leaves no room for `eos_id`.
        """
        pieces = self._split(tf.convert_to_tensor(text, tf.string))
        if max_length is not None:
            if max_length < 1:
                raise ValueError(
                    "`max_length` must be at least 1, for the mark that ends a sentence. "
                    f"Received: max_length={max_length}"
                )
            pieces = pieces[:, : max_length - 1]
        eos = tf.fill([pieces.nrows(), 1], tf.constant(self.eos_id, tf.int32))
        ids = tf.concat([pieces, eos], axis=1)
        return ids.to_tensor(self.pad_id), tf.cast(ids.row_lengths(), tf.int32)

    def decode(self, ids):
        """Turns rows of ids into strings, reading each up to its first `eos_id`.

        Args:
            ids: integer tensor (B, T). `pad_id` and `bos_id` are dropped; `unk_id`, and ids
                outside the vocabulary, are written as U+FFFD.

        Returns:
            string tensor (B,).
        """
        ids = tf.cast(ids, tf.int32)
        is_open = tf.cumsum(tf.cast(ids == self.eos_id, tf.int32), axis=1) == 0
        is_text = is_open & (ids != self.pad_id) & (ids != self.bos_id)
        return self._join(tf.ragged.boolean_mask(self._known(ids), is_text))

    def tokens(self, ids):
        """Turns each id into the text that it stands for.

        Args:
            ids: integer tensor.

        Returns:
            string tensor of the shape of `ids`: empty for `pad_id`, `bos_id` and `eos_id`, U+FFFD
            for `unk_id` and ids outside the vocabulary. A row, joined, is what `decode` gives, but
            for spaces in front, which SentencePiece counts to the first word.
        """
        return tf.gather(tf.constant(self._surfaces), self._known(tf.cast(ids, tf.int32)))

    def _known(self, ids):
        return tf.where((ids >= 0) & (ids < self.vocabulary_size), ids, self.unk_id)

    def encode_as_lists(self, sentences):
        """Turns Python strings into one int32 array each, without marks: the rows of a data set."""
        pieces = self._split(tf.constant(list(sentences), tf.string, shape=[len(sentences)]))
        rows = np.split(pieces.values.numpy(), pieces.row_splits.numpy()[1:])
        return rows[:-1]  # np.split also returns what follows the last row: nothing

    def save(self, path):
        """Writes the tokenizer to the file `path`, which appears complete or not at all."""
        temporary = f"{os.fspath(path)}.{os.getpid()}.tmp"
        try:
            with open(temporary, "wb") as file:
                file.write(self.to_bytes())
            os.replace(temporary, path)
        except BaseException:
            if os.path.exists(temporary):
                os.remove(temporary)
            raise

    @classmethod
    def load(cls, path):
        """Reads a tokenizer that `save` wrote.

        Raises:
            ValueError: if there is no such file, or it holds something else.
        """
        content = read_file(path)
        try:
            return cls.from_bytes(content)
        except ValueError as error:
            raise ValueError(f"{error} Received: path={os.fspath(path)!r}") from error
