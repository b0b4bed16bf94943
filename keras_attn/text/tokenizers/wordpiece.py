"""Tokenizer of BERT: words, split into the longest pieces of a vocabulary."""

import functools

import numpy as np

from keras_attn.text.tokenizers.operations import (
    load_regex,
    load_tensorflow_text,
    lower,
    normalize,
    replace,
    tf,
    valid,
)
from keras_attn.text.tokenizers.recent_characters import RECENT
from keras_attn.text.tokenizers.template import Template
from keras_attn.text.tokenizers.tokenizer import REPLACEMENT, Tokenizer

_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_IDEOGRAPHS = (
    "\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b920-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f"
)
_NO_WORD = "\U0010ffff"  # no character, so that no vocabulary has it
_CLEAN = [
    # TensorFlow's operation would split words at these, or the steps below delete them.
    (f"[{RECENT}\U0002b820-\U0002b91f]", _NO_WORD),
    ("[\t\n\r]", " "),
    (r"[\p{Cc}\p{Cf}\p{Co}" + f"{REPLACEMENT}]", ""),
    ("[\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]", " "),
    (f"([{_IDEOGRAPHS}])", r" \1 "),
]
_ASCII_PUNCTUATION = r"!-/:-@\[-`{-~"
_ACCENTS = "[\\p{Mn}\u1734\U0001171e]"  # in Unicode 8
# Words above 100 characters are unknown. The class of all punctuation, repeated 101 times, is too
# large for TensorFlow's expressions, so spaces are put around the punctuation first. Hugging Face's
# library has the punctuation of Unicode 8, to which U+166D belonged.
_LONG_WORDS = [
    ("([\\p{P}\u166d])", r" \1 "),
    (f"[^ {_ASCII_PUNCTUATION}]{{101,}}", _NO_WORD),
]
_WORD = rf"[{_ASCII_PUNCTUATION}\p{{P}}]|[^ {_ASCII_PUNCTUATION}\p{{P}}]+"  # without white space
_BYTES_PER_WORD = 400  # of 100 characters


class WordPiece(Tokenizer):
    """Words split into the longest pieces of a vocabulary, as BERT's tokenizer does.

        word = p_1 ##p_2 ... ##p_n,   p_i the longest piece that continues the word

    Use it for BERT, MiniLM and DistilBERT, from their `vocab.txt`.

    The ids equal those of Hugging Face's tokenizer, except that special tokens, such as "[SEP]",
    are plain text if they occur in a text, and that words with characters younger than Unicode 8
    are unknown. Time is O(T) for T characters. An exported graph contains the vocabulary; it needs
    the operations of TensorFlow Text, but no file.

    Args:
        vocabulary: list of V distinct strings, the pieces by id, among them "[PAD]", "[UNK]",
            "[CLS]" and "[SEP]", the padding, unknown, first and last token.
        lower_case: bool. Turn the text into lower case.
        strip_accents: bool. Delete accents; None does so if `lower_case`.
        template: a `Template`, the special tokens around texts. None for BERT's,
            [CLS] a [SEP] and [CLS] a [SEP] b [SEP].
        special_pieces: list of the texts of the padding, unknown, first and last token, if they
            are others than BERT's.
        added_tokens: list of the texts of the next ids, which `AddedTokens` cuts out of texts.

    Raises:
        ValueError: if `vocabulary` repeats a piece or lacks one of the four.
        ImportError: if tensorflow-text is not installed, or, where Python tokenizes, regex.

    Example:
        >>> from keras_attn.text import WordPiece
        >>> pieces = "[PAD] [UNK] [CLS] [SEP] the cat ##s".split()
        >>> tokenizer = WordPiece(pieces)
        >>> ids, lengths = tokenizer.encode(["The cats", "a cat"])
        >>> ids.numpy().tolist()
        [[2, 4, 5, 6, 3], [2, 1, 5, 3, 0]]

    Differs from the paper: the pieces of a word are the longest ones instead of the likeliest.

    Reference: [Wu et al., 2016](https://arxiv.org/abs/1609.08144), section 4.1; in linear time:
        [Song et al., 2020](https://arxiv.org/abs/2012.15524).
    """

    packages = ("regex",)

    def __init__(
        self,
        vocabulary,
        lower_case=True,
        strip_accents=None,
        template=None,
        special_pieces=_SPECIAL_TOKENS,
        added_tokens=(),
    ):
        super().__init__()
        self._special_pieces, self._num_pieces = np.array(special_pieces, object), len(vocabulary)
        pieces = [*vocabulary, *added_tokens]
        if len(set(pieces)) < len(pieces) or not set(special_pieces) <= set(pieces):
            raise ValueError(
                f"`vocabulary` must be distinct pieces, {', '.join(special_pieces)} among them. "
                f"Received: {len(pieces)} pieces, {len(set(pieces))} distinct, "
                f"without {sorted(set(special_pieces) - set(pieces))}."
            )
        # An array: TensorFlow would wrap a list, and search it for variables.
        self._vocabulary = np.array(pieces, object)
        self.vocabulary_size = len(pieces)
        self.pad_id, self.unk_id, self.bos_id, self.eos_id = map(pieces.index, special_pieces)
        end = (self.eos_id,)
        as_bert = Template((self.bos_id,), end, end, second_segment=1)
        self.template = as_bert if template is None else Template.of(template)
        self._lower_case, self._strip_accents = lower_case, strip_accents
        # No word holds U+FFFD.
        read = [*vocabulary, *(REPLACEMENT + token for token in added_tokens)]
        self._operation = _operation(read, special_pieces[1]) if tf is not None else None

    def vocabulary(self):
        return self._vocabulary.tolist()

    def get_config(self):
        return {
            "vocabulary": self.vocabulary()[: self._num_pieces],
            "lower_case": self._lower_case,
            "strip_accents": self._strip_accents,
            "template": self.template,
            "special_pieces": self._special_pieces.tolist(),
            "added_tokens": self.vocabulary()[self._num_pieces :],
        }

    def _normalized(self, text):
        text = replace(valid(text), _CLEAN)
        if self._lower_case if self._strip_accents is None else self._strip_accents:
            text = replace(normalize(text, "NFD"), [(_ACCENTS, "")])
        return replace(lower(text) if self._lower_case else text, _LONG_WORDS)

    def _split(self, text):
        return self._operation.tokenize(self._normalized(text))

    def _split_in_python(self, sentences):
        words = (load_regex().findall(_WORD, self._normalized(text)) for text in sentences)
        ids = ([i for word in row for i in self._pieces_of(word)] for row in words)
        return [np.array(row, "int32") for row in ids]

    def _pieces_of(self, word):
        """Return the ids of a word's longest pieces, or `unk_id` if a part of it is none."""
        ids, start = [], 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(len(word), start, -1):
                piece_id = self._ids.get(prefix + word[start:end])
                if piece_id is not None:
                    break
            else:
                return [self.unk_id]
            ids.append(piece_id)
            start = end
        return ids

    @functools.cached_property
    def _ids(self):
        return {piece: i for i, piece in enumerate(self._vocabulary[: self._num_pieces])}

    @functools.cached_property
    def _surfaces(self):
        """Each piece with the space in front of it, if a word begins there."""
        texts = [self._surface(piece) for piece in self._vocabulary]
        return np.array([text.encode() for text in texts], object)

    def _surface(self, piece):
        padding, unknown, *ends = self._special_pieces
        if piece in (padding, *ends, "[MASK]", "<mask>"):
            return ""
        if piece.startswith("##"):
            return piece[2:]
        if piece in (".", "?", "!", ","):
            return piece
        return f" {REPLACEMENT if piece == unknown else piece}"

    def _join(self, pieces):
        surfaces = tf.gather(tf.constant(self._surfaces), pieces)
        return tf.strings.regex_replace(tf.strings.reduce_join(surfaces, axis=1), "^ ", "")

    def _join_in_python(self, ids):
        return b"".join(self._surfaces[ids]).decode().removeprefix(" ")


def _operation(pieces, unknown):
    make = load_tensorflow_text().FastWordpieceTokenizer
    with tf.init_scope():  # its model is a tensor, which must not belong to a graph
        return make(
            pieces,
            unknown_token=unknown,
            max_bytes_per_word=_BYTES_PER_WORD,
            token_out_type=tf.int32,
        )
