"""Rules by which a beam search stops and keeps hypotheses."""

from typing import NamedTuple

from keras import ops


class Stopping(NamedTuple):
    """The rules of one search.

    `early_stopping=None` is exact: all ended candidates are kept, and a row stops when no open
    hypothesis can exceed its best ended one, since log p only decreases and no hypothesis is longer
    than `max_length`.

    The other rules are Hugging Face's. Only the K best candidates of a step may end, and a row
    stops after K hypotheses ended: True stops at once. False and "never" stop when the best open
    hypothesis does not exceed the worst ended one, its score taken at its present length (False) or
    at `max_length` ("never").
    """

    early_stopping: object
    beams: int
    max_length: int
    penalty: object  # function of a length

    def keep(self, is_end):
        """Return True for the ended candidates, bool (B, C), that are kept; the best is first."""
        if self.early_stopping is None:
            return is_end
        numbers = ops.arange(is_end.shape[1], dtype="int32")
        return ops.logical_and(is_end, numbers < self.beams)

    def is_open(self, open_scores, ended, length):
        """Return True for the rows (B,) that may still find a better hypothesis.

        Args:
            open_scores: (B, K), log-probabilities of hypotheses of `length` tokens, best first.
            ended: (B, K), scores of ended hypotheses, best first.
        """
        if self.early_stopping is True:
            return ops.equal(ended[:, -1], -float("inf"))
        longest = length if self.early_stopping is False else self.max_length
        rival = ended[:, 0] if self.early_stopping is None else ended[:, -1]
        return open_scores[:, 0] / self.penalty(longest) > rival
