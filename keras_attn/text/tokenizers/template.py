"""Special tokens around a text, and around a pair of texts."""

import copy
import dataclasses

import numpy as np

from keras_attn.ops.checks import check_sizes
from keras_attn.text.tokenizers.operations import (
    fill,
    join,
    repeat,
    row_lengths,
    shorten,
    shorten_each,
    tf,
)


@dataclasses.dataclass(frozen=True)
class Template:
    """Ids of the special tokens around a text, and around a pair of texts.

        text: start a_1 ... a_T end        pair: start a_1 ... a_T middle b_1 ... b_S end

    Use it for a tokenizer whose model expects other special tokens around its texts.

    Args:
        start, middle, end: tuples of ids.
        second_segment: int. Segment of `b` and of the `end` of a pair; all else is segment 0.

    Example:
        >>> from keras_attn.text import Template, WordPiece
        >>> pieces = "[PAD] [UNK] [CLS] [SEP] the cat".split()
        >>> roberta = Template(start=(2,), middle=(3, 3), end=(3,))
        >>> tokenizer = WordPiece(pieces, template=roberta)
        >>> ids, lengths, segment_ids = tokenizer.encode_pair(["the cat"], ["cat"])
        >>> ids.numpy().tolist()
        [[2, 4, 5, 3, 3, 5, 3]]

    Differs from the paper: the ids are arguments.

    Reference: [Devlin et al., 2018](https://arxiv.org/abs/1810.04805), section 3, figure 2.
    """

    start: tuple = ()
    middle: tuple = ()
    end: tuple = ()
    second_segment: int = 0

    def __post_init__(self):
        for name in ("start", "middle", "end"):
            object.__setattr__(self, name, tuple(map(int, getattr(self, name))))

    @classmethod
    def of(cls, value):
        """Return a template of a `Template`, of the dict in a file, or of None: no tokens."""
        return value if isinstance(value, cls) else cls(**(value or {}))

    def around(self, rows, max_length=None, end=True):
        """Return rows with the special tokens of one text, cut to `max_length` at their ends.

        Without `end` the tokens after the text are left out.
        """
        after = self.end if end else ()
        special = len(self.start) + len(after)
        if max_length is not None:
            check_sizes(least=max(1, special), max_length=max_length)
            rows = shorten(rows, max_length - special)
        return join([repeat(self.start, rows), rows, repeat(after, rows)])

    def around_pair(self, first, second, max_length=None):
        """Return rows with the special tokens of a pair, and rows of their segments.

        With `max_length` the longer text of a pair is cut first, then both equally.
        """
        special = len(self.start) + len(self.middle) + len(self.end)
        if max_length is not None:
            check_sizes(least=max(1, special), max_length=max_length)
            lengths = row_lengths(first), row_lengths(second)
            kept = _shared(*lengths, max_length - special)
            first = shorten_each(first, kept[0])
            second = shorten_each(second, kept[1])
        start, middle, end = (repeat(x, first) for x in (self.start, self.middle, self.end))
        before, after = join([start, first, middle]), join([second, end])
        segments = [fill(before, 0), fill(after, self.second_segment)]
        return join([before, after]), join(segments)


def marking(tokenizer):
    """Return a copy of a tokenizer by which the second text of a pair, and its end, are segment 1.

    The template of a RoBERTa has segment 0 there.
    """
    marked = copy.copy(tokenizer)
    marked.template = dataclasses.replace(tokenizer.template, second_segment=1)
    return marked


def _shared(first, second, available):
    """Return the lengths to which two texts are cut, together at most `available`."""
    xp = np if tf is None or not tf.is_tensor(first) else tf
    short = xp.minimum(first, second)
    long = xp.minimum(xp.maximum(first, second), xp.maximum(short, available - short))
    is_full = short + long > available
    short = xp.where(is_full, 0 * short + available // 2, short)
    long = xp.where(is_full, 0 * long + available - available // 2, long)
    swaps = first > second
    return xp.where(swaps, long, short), xp.where(swaps, short, long)
