"""Batches of consecutive segments of texts."""

import bisect
import heapq

import keras
import numpy as np

from keras_attn.ops.checks import check_sizes, check_that
from keras_attn.text.batches.datasets import Rows, dataset_of, import_tensorflow
from keras_attn.text.corpus.array_files import ArrayFiles

PAD = 0


class SegmentStreams(keras.utils.PyDataset):
    """Batches of segments in which each row continues the same row of the batch before.

        token_ids[b] = x_i ... x_{i+T-1},   targets[b] = x_{i+1} ... x_{i+T};   next: i + T

    One long text is cut into `batch_size` parts, whose lengths differ by one token at most, and
    each row reads a part; the last token of a part is the first of the next part, so that each
    token but the first of all is predicted once. If there are several texts (documents, episodes),
    a row reads one from its start to its end, then the next unread one, in a new segment. After
    the end of a text or a part, and when no text is left for a row, the rest of a segment is
    padding, 0.

    `reset` is 1 if a row's segment begins a text or a part: then a memory of the row must be
    emptied, as `keras_attn.memory.StatefulSegments` does. (It is an integer, because Keras averages
    the first batch over replicas.) All batches have the same shape, so nothing is traced again.

    The order matters. Give `as_dataset()` to `fit`, or the object itself with `shuffle=False`; a
    `StatefulSegments` then needs its `batch_size`, which the object does not report.

    A text in files, a `TokenFiles`, is read as it is needed, and each process reads and makes its
    rows only. Which tokens a batch has is arithmetic for one text, and takes one number a text for
    several.

    Args:
        texts: int array of one text's token ids, a `TokenFiles`, or a list of such arrays. Tokens
            are above 0.
        batch_size: int. Number B of rows.
        segment_length: int. Number T of tokens in a segment.

    Returns:
        `streams[i]` is `({"token_ids": (B, T), "reset": (B,)}, targets (B, T))`, all int32.

    Raises:
        ValueError: if a size is below 1, a text has fewer than two tokens or ids that are no
            integers above 0, or one long text lacks a token to predict for each row.

    Example:
        >>> from keras_attn.text import SegmentStreams
        >>> streams = SegmentStreams([5, 6, 7, 8, 9], batch_size=2, segment_length=2)
        >>> inputs, targets = streams[0]
        >>> inputs["token_ids"].tolist(), targets.tolist()
        ([[5, 6], [7, 8]], [[6, 7], [8, 9]])

    Differs from the paper: the authors' code drops the tokens that do not fill all rows.

    Reference: [Dai et al., 2019](https://arxiv.org/abs/1901.02860), section 3.2.
    """

    def __init__(self, texts, batch_size, segment_length, **kwargs):
        super().__init__(**kwargs)
        check_sizes(batch_size=batch_size, segment_length=segment_length)
        wanted = "an array of token ids, or a list of such arrays"
        check_that(hasattr(texts, "__len__"), wanted, texts=texts)
        if isinstance(texts, ArrayFiles) or len(texts) and _is_number(texts[0]):
            self._plan = _Parts(_checked(texts, "`texts`"), batch_size, segment_length)
        else:
            texts = [_checked(text, f"Text {i + 1}") for i, text in enumerate(texts)]
            self._plan = _Queue(texts, batch_size, segment_length)
        self._batch_size, self._length = batch_size, segment_length
        self._distribution = keras.distribution.distribution()

    def __len__(self):
        return self._plan.num_batches

    def __getitem__(self, index):
        return self.batch(index, Rows.here(self._distribution))

    def batch(self, index, rows=Rows()):
        """Return the batch at an index; `rows` selects the rows of one process."""
        places = rows.of(self._batch_size)
        real_rows = range(self._batch_size)[places.start : places.stop]
        index = range(len(self))[index]
        segments = [self._plan.segment(index, row) for row in real_rows]
        tokens = [part for part, _ in segments] + [()] * (len(places) - len(real_rows))
        reset = np.zeros(len(places), np.int32)
        reset[: len(real_rows)] = [begins for _, begins in segments]
        token_ids, targets = shifted(tokens, self._length)
        return {"token_ids": token_ids, "reset": reset}, targets

    def as_dataset(self):
        """Return a `tf.data.Dataset` of the same batches, of known shape."""
        tf = import_tensorflow()
        signature = keras.tree.map_structure(tf.type_spec_from_value, self.batch(0))

        def one_pass(rows):
            return (self.batch(index, rows) for index in range(len(self)))

        return dataset_of(one_pass, signature, len(self))


def shifted(rows, length):
    """Return tokens (B, T) and the tokens after them, of rows of at most T + 1 ids, padded."""
    token_ids, targets = np.full((2, len(rows), length), PAD, np.int32)
    for ids, labels, row in zip(token_ids, targets, rows, strict=True):
        if len(row) > 1:
            ids[: len(row) - 1] = row[:-1]
            labels[: len(row) - 1] = row[1:]
    if (token_ids[targets != PAD] == PAD).any() or (targets[token_ids != PAD] == PAD).any():
        raise ValueError(f"A text must have token ids above {PAD}, which is padding.")
    return token_ids, targets


class _Parts:
    """One text, of which each row reads a part; the last token of one is the first of the next."""

    def __init__(self, text, batch_size, length):
        if len(text) <= batch_size:
            raise ValueError(
                "`texts`, one long text, must have a token to predict for each row. "
                f"Received: {len(text)} tokens, batch_size={batch_size}."
            )
        self._text, self._batch_size, self._length = text, batch_size, length
        longest = -(-(len(text) - 1) // batch_size)
        self.num_batches = -(-longest // length)

    def segment(self, index, row):
        """Return the tokens of a row of a batch, and if a part begins there."""
        first, end = ((len(self._text) - 1) * n // self._batch_size for n in (row, row + 1))
        start = first + index * self._length
        stop = min(start + self._length, end) + 1
        return self._text[start:stop] if start < end else (), index == 0


class _Queue:
    """Several texts, of which each row reads the next one as soon as it is free."""

    def __init__(self, texts, batch_size, length):
        if not texts:
            raise ValueError("`texts` must have at least one text. Received: none.")
        self._texts, self._length = texts, length
        self._first = [[] for _ in range(batch_size)]  # batches in which texts of a row begin
        self._text = [[] for _ in range(batch_size)]
        free = [(0, row) for row in range(batch_size)]
        self.num_batches = 0
        for number, text in enumerate(texts):
            begin, row = free[0]
            self._first[row].append(begin)
            self._text[row].append(number)
            end = begin - (-(len(text) - 1) // length)
            heapq.heapreplace(free, (end, row))
            self.num_batches = max(self.num_batches, end)

    def segment(self, index, row):
        """Return the tokens of a row of a batch, and if a text begins there."""
        number = bisect.bisect_right(self._first[row], index) - 1
        if number < 0:
            return (), False
        start = (index - self._first[row][number]) * self._length
        part = self._texts[self._text[row][number]][start : start + self._length + 1]
        return part if len(part) > 1 else (), start == 0


def _is_number(item):
    """Return True for a token id. A text in files is not read whole to find out."""
    return not isinstance(item, ArrayFiles) and np.ndim(item) == 0


def _checked(text, name):
    if isinstance(text, ArrayFiles):  # its ids are compared with padding when they are read
        if len(text) < 2:
            raise ValueError(f"{name} must be two or more token ids. Received: {len(text)}.")
        return text
    try:
        text = np.asarray(text)
    except ValueError:  # rows of different lengths
        text = np.empty(len(text), object)
    if text.ndim != 1 or len(text) < 2 or not np.issubdtype(text.dtype, np.integer):
        raise ValueError(
            f"{name} must be two or more integer token ids. "
            f"Received: shape={text.shape}, dtype={text.dtype}."
        )
    if text.min() <= PAD:
        position = int(np.argmax(text <= PAD))
        received = f"Received: {text[position]} at position {position}."
        raise ValueError(f"{name} must have token ids above {PAD}, which is padding. {received}")
    return text
