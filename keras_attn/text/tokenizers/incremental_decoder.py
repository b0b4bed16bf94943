"""Text of a growing row of ids, piece by piece."""

import os

from keras_attn.text.tokenizers.vocabularies import REPLACEMENT

# An unfinished character of UTF-8 has at most three bytes, each of which may be a U+FFFD so far.
_MAX_UNFINISHED = 3
_MAX_RECENT, _NUM_KEPT = 64, 8  # ids, before and after those without a text are left out


class IncrementalDecoder:
    """Decode ids as they come; the pieces, joined, are what a text of all ids adds to the prompt's.

        piece_t = text(y_1 .. y_t) without text(y_1 .. y_{t-1}), unfinished characters apart

    A token alone does not have the text that it has after others: it may lose its space, or be a
    part of a character. So the ids since the last few are decoded again with each new one: those
    that the new text can depend on. Time O(1) a token beside decoding these, of which there are at
    most some 64. More are a run of spaces that only a later id writes, as Marian's.

    A trailing U+FFFD, of which at most three can be one unfinished character, is held back until
    it is known what it becomes.

    Args:
        decode: function of a list of ids that returns their text, such as
            `lambda ids: tokenizer.decode_as_strings([ids])[0]`. Ids without a text, such as end
            tokens, must not end it.
        prompt: list of ids before the first new one.
    """

    def __init__(self, decode, prompt=()):
        self._decode = decode
        # The text of the context is known but for its unfinished end; that of the recent ids, all
        # since then, shows whether they suffice as the next context.
        self._context, self._recent = list(prompt), []
        self._read = decode(self._context)  # of the text of both, as far as it is returned

    def add(self, token_id):
        """Return the characters that a token completes, "" if there is none."""
        self._recent.append(token_id)
        text = self._decode(self._context + self._recent)
        held = min(len(text) - len(text.rstrip(REPLACEMENT)), _MAX_UNFINISHED)
        complete = text[: len(text) - held]
        piece = self._after_read(complete)
        if not self._read.startswith(complete):  # otherwise the end of the prompt is held
            self._read = complete
        own = self._decode(self._recent)
        # The last complete character is that of these ids: what follows depends on no earlier one.
        if len(own) > held and own[-held - 1 :] == text[-held - 1 :]:
            self._context, self._recent = self._recent, []
            self._read = own[: len(own) - held]
        elif len(self._recent) > _MAX_RECENT and len(self._recent) % _NUM_KEPT == 0:
            self._leave_out(text, held)
        return piece

    def _leave_out(self, text, held):
        """Keep the first of the recent ids only, if the text after them is the same."""
        kept, after = self._recent[:_NUM_KEPT], self._context
        shorter = self._decode(self._context + kept)
        following = self._decode(self._context + self._recent + after)[len(text) :]
        if (
            shorter[-held - 1 :] == text[-held - 1 :]
            and self._decode(self._context + kept + after)[len(shorter) :] == following
        ):
            self._recent, self._read = kept, shorter[: len(shorter) - held]

    def finish(self):
        """Return the characters that were held back; no id may follow."""
        return self._after_read(self._decode(self._context + self._recent))

    def _after_read(self, text):
        # A prompt may end in a part of a character, which is no part of the text any more.
        return text[len(os.path.commonprefix([self._read, text])) :]
