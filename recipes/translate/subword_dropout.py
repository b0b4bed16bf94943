"""BPE dropout: sentences that are segmented anew in each epoch."""

import itertools
import math

import numpy as np

from keras_attn.text.tokenizers.sentencepiece_model import NORMAL, read_model

_SPACE = "\u2581"  # SentencePiece's sign for it
_UNKNOWN = "\ud800"  # no character of any text
_MOST_SPLITS = 2**20  # kept; some hundred MB
_MOST_BATCHES = 64  # of a window


class SubwordDropoutBatches:
    """Batches of all pairs of plain ones, each sentence in other pieces in each epoch.

    At each merge of a word every possible merge is left out with the probability `rate`; the word
    is done when none is left. A sentence that would be longer than `max_length` keeps its plain
    pieces.

    The pairs of a window, up to 64 plain batches one after another, are sorted by their new lengths
    and batched again; otherwise padding would add more tokens than the dropout. Each batch keeps
    its number of pairs. The first batch of a window takes the time of the whole window. All follows
    from `(seed, epoch, index)`, so that a resumed run reads the same batches.

    The library SentencePiece has this sampling too, but its numbers differ from process to process,
    whatever its seed is.

    Args:
        batches: a `keras_attn.text.TokenBatches`.
        tokenizer: a `keras_attn.text.SentencePiece` of type "bpe".
        rate: float in [0, 1).
        max_length: int. Longest row, the last token included.
        seed: int.

    Differs from the paper: none.

    Reference: Provilkov et al., 2020 (https://arxiv.org/abs/1910.13267), section 3 and algorithm 1.
    """

    def __init__(self, batches, tokenizer, rate, max_length, seed):
        self._batches, self._tokenizer, self._rate = batches, tokenizer, rate
        self._max_length, self._seed = max_length, seed
        self._merges = Merges(tokenizer)
        # Windows of one size, but for rounding: a last batch alone would keep its padding.
        self._window_size = math.ceil(len(batches) / math.ceil(len(batches) / _MOST_BATCHES))
        self._kept = None, []  # (epoch, window) and its batches

    def __len__(self):
        return len(self._batches)

    def batch(self, epoch, index):
        """Return the batch at an index of an epoch, in the form of `TokenBatches`."""
        window, place = divmod(index, self._window_size)
        kept = self._kept  # read once: another thread may replace it
        if kept[0] != (epoch, window):
            self._kept = kept = (epoch, window), self._batches_of_window(epoch, window)
        pairs = kept[1][place]
        sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
        begun = [[self._tokenizer.bos_id, *row[:-1]] for row in targets]
        inputs = {"source_ids": self._padded(sources), "target_ids": self._padded(begun)}
        return inputs, self._padded(targets)

    def _batches_of_window(self, epoch, window):
        """Return the batches of a window as lists of pairs of lists of ids.

        The n-th widest batch stays at its index, so that short and long ones remain mixed.
        """
        skipped = _numbers_skipped(np.random.default_rng([self._seed, epoch, window]), self._rate)
        pairs, widths, sizes = [], [], []
        first = window * self._window_size
        for index in range(first, min(first + self._window_size, len(self))):
            inputs, labels = self._batches.batch(epoch, index)
            widths.append(max(inputs["source_ids"].shape[1], labels.shape[1]))
            sizes.append(len(labels))
            for source, target in zip(inputs["source_ids"], labels, strict=True):
                pairs.append((self._segmented(source, skipped), self._segmented(target, skipped)))
        pairs.sort(key=lambda pair: max(map(len, pair)))
        batches, start = [None] * len(sizes), 0
        for place in np.argsort(widths, kind="stable"):
            batches[place] = pairs[start : start + sizes[place]]
            start += sizes[place]
        return batches

    def _segmented(self, row, skipped):
        """Return the ids of a padded row in other pieces, with its end, as a list."""
        *plain, end = row[row != self._tokenizer.pad_id].tolist()
        ids = self._merges.segment(plain, skipped)
        return [*(ids if len(ids) < self._max_length else plain), end]

    def _padded(self, rows):
        width = max(map(len, rows))
        # Even, as those of `TokenBatches`: compilers want few shapes.
        width = max(width, min(width + width % 2, self._max_length))
        return np.array([row + [self._tokenizer.pad_id] * (width - len(row)) for row in rows], "i4")


class Merges:
    """The merges of a BPE tokenizer, and the splits of words that they have led to so far.

    Args:
        tokenizer: a `keras_attn.text.SentencePiece` of type "bpe".
    """

    def __init__(self, tokenizer):
        _, pieces, _ = read_model(tokenizer.to_bytes())
        normal = [(i, *piece[:2]) for i, piece in enumerate(pieces) if piece[2] == NORMAL]
        self._ids = {text: i for i, text, _ in normal}
        self._scores = {text: score for _, text, score in normal}
        self._texts = [_UNKNOWN] * len(pieces)
        for i, text, _ in normal:
            self._texts[i] = text
        self._unknown_id = tokenizer.unk_id
        self._splits = {}

    def segment(self, ids, skipped):
        """Return other ids of the text of some ids, without special tokens.

        Args:
            ids: list of ints.
            skipped: iterator of the number of merges that are left out before the next one.
        """
        if len(self._splits) > _MOST_SPLITS:
            self._splits = {}
        # No piece crosses a space.
        start, *words = "".join([self._texts[i] for i in ids]).split(_SPACE)
        result = []
        for word in ([start] if start else []) + [_SPACE + word for word in words]:
            split = self._split(tuple(word))
            # The best merge that is not left out, again and again.
            while (number := next(skipped)) < len(split.merges):
                split = split.followers.get(number) or self._merge(split, number)
            result += split.ids
        return result

    def _split(self, pieces):
        """Return the `Split` of some pieces."""
        split = self._splits.get(pieces)
        if split is None:
            pairs = enumerate(itertools.pairwise(pieces))
            merges = [(-self._scores[a + b], i) for i, (a, b) in pairs if a + b in self._scores]
            ids = [self._ids.get(piece, self._unknown_id) for piece in pieces]
            # SentencePiece writes unknown characters that follow each other as one.
            ids = [
                i for before, i in zip([None, *ids], ids) if i != self._unknown_id or i != before
            ]
            split = self._splits[pieces] = Split(pieces, ids, [i for _, i in sorted(merges)])
        return split

    def _merge(self, split, number):
        """Return the `Split` after a merge, and keep it for the next time."""
        i, pieces = split.merges[number], split.pieces
        merged = self._split((*pieces[:i], pieces[i] + pieces[i + 1], *pieces[i + 2 :]))
        split.followers[number] = merged
        return merged


class Split:
    """A word in pieces.

    Args:
        pieces: tuple of str.
        ids: list of their ids.
        merges: list of the places of the pieces that may be merged with the next one, those of the
            best merge first.

    Attributes:
        followers: dict of the known `Split`s after a merge, by its index in `merges`.
    """

    __slots__ = ("pieces", "ids", "merges", "followers")

    def __init__(self, pieces, ids, merges):
        self.pieces, self.ids, self.merges = pieces, ids, merges
        self.followers = {}


def _numbers_skipped(rng, rate):
    """Yield, without end, how many merges in turn are left out before one is not."""
    while True:
        yield from (rng.geometric(1 - rate, 4096) - 1).tolist()
