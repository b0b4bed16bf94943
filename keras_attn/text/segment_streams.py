"""Batches of consecutive segments of texts."""

import keras
import numpy as np

from keras_attn.ops.checks import check_sizes, check_that
from keras_attn.text.datasets import dataset_of, rows_to_feed

_PAD = 0


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

    Args:
        texts: int array of one text's token ids, or a list of such arrays. Tokens are above 0.
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
        if len(texts) and np.ndim(texts[0]) == 0:
            texts = _parts(_checked(texts, "`texts`"), batch_size)
        else:
            texts = [_checked(text, f"Text {i + 1}") for i, text in enumerate(texts)]
        if not texts:
            raise ValueError("`texts` must have at least one text. Received: none.")
        self._texts = texts
        self._batch_size, self._length = batch_size, segment_length
        self._distribution = keras.distribution.distribution()
        self._plan = self._schedule()

    def __len__(self):
        return len(self._plan)

    def __getitem__(self, index):
        return rows_to_feed(self.batch(index), self._distribution)

    def batch(self, index):
        """Return the whole batch at an index."""
        token_ids, targets = np.full((2, self._batch_size, self._length), _PAD, np.int32)
        reset = np.zeros(self._batch_size, np.int32)
        for row, (text, start) in enumerate(self._plan[index]):
            if text is not None:
                tokens = self._texts[text][start : start + self._length + 1]
                token_ids[row, : len(tokens) - 1] = tokens[:-1]
                targets[row, : len(tokens) - 1] = tokens[1:]
                reset[row] = start == 0
        return {"token_ids": token_ids, "reset": reset}, targets

    def as_dataset(self):
        """Return a `tf.data.Dataset` of the same batches, of known shape."""
        import tensorflow as tf

        signature = keras.tree.map_structure(tf.type_spec_from_value, self.batch(0))
        return dataset_of(lambda: map(self.batch, range(len(self))), signature, len(self))

    def _schedule(self):
        """Return for each batch the text, or None, and the start of the segment of each row."""
        plan, unread = [], iter(range(len(self._texts)))
        rows = [(None, 0)] * self._batch_size
        while True:
            rows = [self._following(*row, unread) for row in rows]
            if all(text is None for text, _ in rows):
                return plan
            plan.append(rows)

    def _following(self, text, start, unread):
        start += self._length
        if text is None or start >= len(self._texts[text]) - 1:
            return next(unread, None), 0
        return text, start


def _checked(text, name):
    try:
        text = np.asarray(text)
    except ValueError:  # rows of different lengths
        text = np.empty(len(text), object)
    if text.ndim != 1 or len(text) < 2 or not np.issubdtype(text.dtype, np.integer):
        raise ValueError(
            f"{name} must be two or more integer token ids. "
            f"Received: shape={text.shape}, dtype={text.dtype}."
        )
    if text.min() <= _PAD:
        position = int(np.argmax(text <= _PAD))
        received = f"Received: {text[position]} at position {position}."
        raise ValueError(f"{name} must have token ids above {_PAD}, which is padding. {received}")
    return text


def _parts(text, num_parts):
    if len(text) <= num_parts:
        raise ValueError(
            "`texts`, one long text, must have a token to predict for each row. "
            f"Received: {len(text)} tokens, batch_size={num_parts}."
        )
    starts = [(len(text) - 1) * part // num_parts for part in range(num_parts + 1)]
    return [text[start : end + 1] for start, end in zip(starts, starts[1:], strict=False)]
