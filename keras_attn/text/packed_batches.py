"""Batches whose rows hold several sentences each."""

import numpy as np

from keras_attn.ops.checks import check_sizes
from keras_attn.text.batches import BOS, EOS, PAD, TokenBatches, lengths_with_end


class PackedBatches(TokenBatches):
    """Batches whose rows hold several sentence pairs each, or several texts, one after another.

        rows = tokens_per_batch // row_length,   sum of the lengths in a row <= row_length

    Other sentences take the place of padding, and all batches have one shape, so that one graph is
    traced or compiled. The models of `keras_attn` take the segment ids: each sentence has the loss
    and the gradient that it has alone. In rows of up to 511 tokens attention computes the scores of
    all pairs of the row; in longer rows "causal" layers compute a window as wide as the longest
    sentence. So rows as long as the longest sentence are the fastest. Neither side of a pair is
    cut, and both have the same segment number in their row.

    Pairs are packed once, by their lengths: the longest first, each into the first row with space
    for both sides. An epoch shuffles pairs of the same lengths among their slots, then the rows. So
    the number of batches is the same in every epoch. Empty rows fill the last batch. Packing takes
    O(C R) time for C different pairs of lengths and R rows, and an epoch O(P log P) for P pairs.

    Everything is a function of `(seed, epoch)`, and epochs advance, as for `TokenBatches`.

    Args:
        sources: list of int arrays, token ids without special tokens; None for texts of a language
            model.
        targets: list of int arrays of the same number.
        tokens_per_batch: int. Budget of a batch and side, as for `TokenBatches`.
        row_length: int. Tokens of a row and side, at least those of the longest sentence and its
            special token. On Multi30k at 4096 tokens 5 % of all ids are padding with 64, four times
            the mean, where a `TokenBatches` leaves 10 %.
        shuffle: bool. False gives every epoch the same batches.
        seed: int.

    Returns:
        `batches[i]` is `(inputs, labels)`, int32 (rows, row_length): of each sentence source
        tokens + eos, bos + target tokens, target tokens + eos, at the end of a row 0. `inputs` are
        `source_ids`, `source_segment_ids`, `target_ids` and `target_segment_ids`, or `token_ids`
        and `segment_ids`; segments are numbered from 1 in each row, and 0 is padding.

    Raises:
        ValueError: if the two sides differ in number, are empty, a sentence is longer than a row,
            or `tokens_per_batch` does not hold one row.

    Example:
        >>> import numpy as np
        >>> from keras_attn.text import PackedBatches
        >>> texts = [np.array([5, 6]), np.array([7])]
        >>> inputs, labels = PackedBatches(None, texts, tokens_per_batch=6, row_length=6)[0]
        >>> inputs["token_ids"].tolist(), inputs["segment_ids"].tolist(), labels.tolist()
        ([[2, 5, 6, 2, 7, 0]], [[1, 1, 1, 2, 2, 0]], [[5, 6, 3, 7, 3, 0]])

    Differs from the paper: pairs have two lengths; and the first row with space is taken, where the
    paper's histogram packing takes the one with the least or the most.

    Reference: [Krell et al., 2021](https://arxiv.org/abs/2107.02027), section 3.
    """

    def __init__(
        self,
        sources,
        targets,
        tokens_per_batch=4096,
        row_length=128,
        *,
        shuffle=True,
        seed=0,
        **kwargs,
    ):
        check_sizes(row_length=row_length, tokens_per_batch=tokens_per_batch)
        if tokens_per_batch < row_length:
            raise ValueError(
                "`tokens_per_batch` must hold one row. Received: "
                f"tokens_per_batch={tokens_per_batch}, row_length={row_length}"
            )
        self._has_sources = sources is not None
        sources = targets if sources is None else sources
        for side in (("target", targets), ("source", sources)):
            lengths_with_end(*side, row_length=row_length)
        self._shape = tokens_per_batch // row_length, row_length
        self._slots = None
        options = {"multiple": 1, "shuffle": shuffle, "seed": seed, **kwargs}
        super().__init__(sources, targets, tokens_per_batch, **options)

    def _plan(self, epoch):
        """Return the pairs of each row, in lists of as many rows as a batch has."""
        if self._slots is None:
            sides = (self._sources, self._targets)
            lengths = [[len(sentence) + 1 for sentence in side] for side in sides]
            self._slots = first_fit(np.transpose(lengths), self._shape[1])
        kinds, row_of_slot = self._slots
        random = np.random.default_rng((self.seed, epoch))
        within = random.random(len(kinds)) if self.shuffle else np.zeros(len(kinds))
        pairs = np.lexsort((within, kinds))[np.argsort(row_of_slot, kind="stable")]
        rows = np.split(pairs, np.cumsum(np.bincount(row_of_slot))[:-1])
        order = random.permutation(len(rows)) if self.shuffle else range(len(rows))
        rows, size = [rows[row] for row in order], self._shape[0]
        return [rows[start : start + size] for start in range(0, len(rows), size)]

    def _padded(self, rows):
        labels, numbers = self._packed(self._targets, rows)
        begins = np.diff(numbers, axis=1, prepend=0) > 0
        previous = np.pad(labels, [(0, 0), (1, 0)])[:, :-1]
        token_ids = np.where(begins, np.int32(BOS), previous) * (numbers > 0)
        if not self._has_sources:
            return {"token_ids": token_ids, "segment_ids": numbers}, labels
        source_ids, source_numbers = self._packed(self._sources, rows)
        inputs = {
            "source_ids": source_ids,
            "source_segment_ids": source_numbers,
            "target_ids": token_ids,
            "target_segment_ids": numbers,
        }
        return inputs, labels

    def _packed(self, sentences, rows):
        """Return the sentences of each row, each with its end token, and their numbers."""
        ids, numbers = np.full((2, *self._shape), PAD, np.int32)
        for row, pairs in enumerate(rows):
            end = 0
            for number, pair in enumerate(pairs, start=1):
                start, end = end, end + len(sentences[pair]) + 1
                ids[row, start : end - 1] = sentences[pair]
                ids[row, end - 1] = EOS
                numbers[row, start:end] = number
        return ids, numbers


def first_fit(lengths, capacity):
    """Pack items into rows by first fit: the longest first, each into the first row with space.

    All items of the same lengths, a kind, are packed in one step, which gives the same rows.

    Args:
        lengths: int (P, K), the lengths of P items in K dimensions.
        capacity: int. The length of a row in each dimension.

    Returns:
        The kind of each item (P,), and the row of each slot (P,): first the slots of the items of
        kind 0, then those of kind 1, and so on.
    """
    sizes, kinds, counts = np.unique(lengths, axis=0, return_inverse=True, return_counts=True)
    order = np.lexsort((*sizes.T, sizes.max(axis=1)))[::-1]
    free, slots = np.empty((0, lengths.shape[1]), int), []
    for size, count in zip(sizes[order], counts[order], strict=True):
        each = (capacity // size).min()
        new = np.full((-(-count // each), len(size)), capacity)  # as many rows as could be needed
        free = np.concatenate([free, new])
        fitting = (free // size).min(axis=1)
        taken = np.clip(count - (np.cumsum(fitting) - fitting), 0, fitting)
        free -= taken[:, None] * size
        free = free[(free < capacity).any(axis=1)]
        slots.append(np.repeat(np.arange(len(taken)), taken))
    rank = np.argsort(order)
    return rank[kinds.reshape(-1)], np.concatenate(slots)
