"""Batches of sentence pairs of similar length."""

import keras
import numpy as np

from keras_attn.ops.checks import check_sizes
from keras_attn.text.datasets import dataset_of, rows_to_feed
from keras_attn.text.tokenizer import Tokenizer

PAD, BOS, EOS = Tokenizer.pad_id, Tokenizer.bos_id, Tokenizer.eos_id


class TokenBatches(keras.utils.PyDataset):
    """Batches of sentence pairs of similar length, with a maximum number of tokens.

        rows * max(source length, target length) <= tokens_per_batch        (all padded)

    This is the published "4096 tokens a batch": padding and special tokens count, for source and
    target separately. Pairs form buckets by the longer side, rounded up to `multiple`. An epoch
    shuffles each bucket, cuts it into full batches, moves the remaining pairs to the next longer
    bucket, and shuffles the batches. So the pairs of a batch are random, no batch but the last is
    small, and the number of batches and their sizes are the same in every epoch. An epoch takes
    O(number of pairs).

    Everything is a function of `(seed, epoch)`: a run that sets `epoch = k` continues exactly like
    one that reached epoch k by itself. Epochs advance automatically, in `model.fit(batches,
    shuffle=False)` (Keras would shuffle the batches again otherwise) and at every pass over
    `as_dataset()`. In the scope of a `keras_attn.distribution.strategy` the rows of each batch are
    divided among the replicas, and filled with rows of padding if they do not divide.

    Args:
        sources: list of int arrays, token ids without special tokens.
        targets: list of int arrays of the same number.
        tokens_per_batch: int. Budget of a batch over all replicas, without rows that fill it.
        max_length: int. Longest sentence allowed, `eos` included; padding does not exceed it
            either. None allows any.
        multiple: int. Padded lengths are multiples of it. A larger one means fewer shapes to
            compile and more padding: on Multi30k at 4096 tokens 7, 10, 15, 24 % of all ids for
            1, 2, 4, 8.
        shuffle: bool. False gives every epoch the same batches, from the shortest to the longest.
        seed: int.

    Returns:
        `batches[i]` is `({"source_ids": (B, S), "target_ids": (B, T)}, labels (B, T))`, int32:
        source tokens + eos, bos + target tokens, target tokens + eos, each padded with 0.

    Raises:
        ValueError: if the two sides differ in number, are empty, a sentence is too long, or a pair
            is longer than `tokens_per_batch`.

    Example:
        >>> import numpy as np
        >>> from keras_attn.text import TokenBatches
        >>> batches = TokenBatches([np.array([5, 6])], [np.array([7])], tokens_per_batch=16)
        >>> inputs, labels = batches[0]
        >>> inputs["source_ids"].tolist(), inputs["target_ids"].tolist(), labels.tolist()
        ([[5, 6, 3, 0]], [[2, 7]], [[7, 3]])

    Differs from the paper: 4096 tokens by default where the paper's batches had about 25000.

    Reference: [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762), section 5.1.
    """

    _shape = (None, None)  # of all arrays of a batch

    def __init__(
        self,
        sources,
        targets,
        tokens_per_batch=4096,
        *,
        max_length=None,
        multiple=2,
        shuffle=True,
        seed=0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if len(sources) != len(targets) or not len(sources):
            raise ValueError(
                "`sources` and `targets` must have the same number of sentences, and at least one. "
                f"Received: {len(sources)} and {len(targets)}"
            )
        for name, rows in {"sources": sources, "targets": targets}.items():
            if any(isinstance(row, str) for row in rows):
                raise ValueError(
                    f"`{name}` must be lists of token ids; `encode_as_lists` of a tokenizer makes "
                    f"them of text. Received: {name}[0]={rows[0]!r}."
                )
        check_sizes(multiple=multiple)
        self.epoch = 0
        self._is_running = False
        self.seed = seed
        self.shuffle = shuffle
        self._sources, self._targets = sources, targets
        self._multiple, self._max_length = multiple, max_length
        self._tokens_per_batch = tokens_per_batch
        self._distribution = keras.distribution.distribution()
        sides = {"source": sources, "target": targets}
        lengths = [lengths_with_end(*side, max_length=max_length) for side in sides.items()]
        longer = np.max(lengths, axis=0)
        self._by_length = np.argsort(longer, kind="stable")
        self._widths = np.array([self._rounded(length) for length in longer])
        if tokens_per_batch < self._widths.max():
            raise ValueError(
                "`tokens_per_batch` must hold each pair, but that of line "
                f"{self._widths.argmax() + 1} takes {self._widths.max()} tokens. Received: "
                f"tokens_per_batch={tokens_per_batch}"
            )
        self._planned = (0, self._plan(0))

    def __len__(self):
        return len(self._planned[1])

    def __getitem__(self, index):
        return rows_to_feed(self.batch(self.epoch, index), self._distribution)

    def batch(self, epoch, index):
        """Return the whole batch at an index of an epoch, independent of `self.epoch`."""
        return self._padded(self._batches(epoch)[index])

    def on_epoch_begin(self):
        self._is_running = True

    def on_epoch_end(self):
        # `fit` also calls this before its first epoch, where it resets its iterator.
        if self._is_running:
            self.epoch += 1
        self._is_running = False

    def as_dataset(self):
        """Return a `tf.data.Dataset` of the same batches; each pass over it takes one epoch."""
        import tensorflow as tf

        def one_epoch():
            epoch, self.epoch = self.epoch, self.epoch + 1
            return map(self._padded, self._batches(epoch))

        ids = tf.TensorSpec(self._shape, tf.int32)
        signature = keras.tree.map_structure(lambda _: ids, self._padded(self._planned[1][0]))
        return dataset_of(one_epoch, signature, len(self))

    def _batches(self, epoch):
        if self._planned[0] != epoch:
            self._planned = (epoch, self._plan(epoch))
        return self._planned[1]

    def _plan(self, epoch):
        """Return the rows of each batch of an epoch."""
        random = np.random.default_rng((self.seed, epoch))
        batches = []
        waiting = np.empty(0, int)
        widths = self._widths[self._by_length]
        for width in np.unique(widths):
            rows = np.concatenate([waiting, self._by_length[widths == width]])
            if self.shuffle:
                random.shuffle(rows)
            size = self._tokens_per_batch // width
            end = len(rows) // size * size
            batches += [rows[start : start + size] for start in range(0, end, size)]
            waiting = rows[end:]
        if len(waiting):
            batches.append(waiting)
        order = random.permutation(len(batches)) if self.shuffle else range(len(batches))
        return [batches[index] for index in order]

    def _rounded(self, length):
        rounded = -(-length // self._multiple) * self._multiple
        return rounded if self._max_length is None else min(rounded, self._max_length)

    def _padded(self, rows):
        sources, targets = ([side[row] for row in rows] for side in (self._sources, self._targets))
        source_ids, labels = (
            _with_end(side, self._rounded(max(map(len, side)) + 1)) for side in (sources, targets)
        )
        target_ids = np.full_like(labels, PAD)
        target_ids[:, 0] = BOS
        for ids, target in zip(target_ids, targets, strict=True):
            ids[1 : len(target) + 1] = target
        return {"source_ids": source_ids, "target_ids": target_ids}, labels


def _with_end(rows, width):
    """Return rows of ids (B, width), int32, each with its end token and padded."""
    padded = np.full((len(rows), width), PAD, np.int32)
    for ids, row in zip(padded, rows, strict=True):
        ids[: len(row)] = row
        ids[len(row)] = EOS
    return padded


def lengths_with_end(side, sentences, **limit):
    """Return the lengths of sentences with an end token; refuse one beyond the limit by its line.

    Args:
        side: str. The word for the sentences in the error.
        sentences: list of int arrays.
        limit: one keyword, the name and the value of the user's argument; None for no limit.
    """
    ((name, longest),) = limit.items()
    lengths = np.array([len(sentence) + 1 for sentence in sentences])
    if longest is not None and (lengths > longest).any():
        line = int(np.argmax(lengths > longest))
        raise ValueError(
            f"The {side} of line {line + 1} has {lengths[line]} tokens with its end token, more "
            f"than the maximum. Received: {name}={longest}."
        )
    return lengths
