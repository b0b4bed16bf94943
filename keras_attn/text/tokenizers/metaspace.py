"""Tokenizer of pieces in which a space is written as a letter, by Hugging Face's rules."""

import functools
import re
import types

import numpy as np

from keras_attn.ops.checks import check_that
from keras_attn.text.tokenizers.operations import replace, tf, valid
from keras_attn.text.tokenizers.rules import SPACE, TextRules
from keras_attn.text.tokenizers.sentencepiece_model import (
    BPE,
    BYTE,
    CONTROL,
    NORMAL,
    UNIGRAM,
    UNKNOWN,
    operation,
    processor,
    write_model,
)
from keras_attn.text.tokenizers.template import Template
from keras_attn.text.tokenizers.tokenizer import REPLACEMENT, Tokenizer

_BYTE = re.compile("<0x[0-9A-F]{2}>")
_WORD_START = "\ud800"  # no text has it, and TensorFlow's expressions read its three bytes
_WORD_START_BYTES = _WORD_START.encode(errors="surrogatepass")
# Sums of such scores are exact in float32 while they are below 4096, so equal sums stay equal.
_SCORE_STEPS = 2**12


class Metaspace(Tokenizer):
    """Pieces of words in which "\u2581" stands for a space, by the rules of a `tokenizer.json`.

        unigram: argmax over segmentations s of x of sum_i score(s_i)      bpe: merges, in order

    Use it for XLM-R, ALBERT, DeBERTa, T5, mBART, NLLB, Pegasus, Llama and Gemma.

    The ids equal those of Hugging Face's library `tokenizers`, except that special tokens, such as
    "</s>", are plain text if they occur in a text. `SentencePiece` computes by the rules in the
    model's own file instead. The operation of SentencePiece segments in the graph: of unigrams it
    takes the scores, rounded to multiples of 2^-12, and a pair is merged if its join is a piece.
    Encoding a sentence of T characters takes O(T log T).

    Args:
        vocabulary: list of [piece, score] by id, for unigrams; dict of the id of each piece, for
            merges.
        merges: list of "a b", the pairs in the order in which they were learned; None for unigrams.
        normalizer, pre_tokenizer: dicts of a `tokenizer.json`, or None.
        special_tokens: dict of the ids of more tokens. No text becomes one; `decode` drops them.
        added_tokens: dict of the ids of more tokens, which `AddedTokens` cuts out of texts;
            `decode` writes them.
        byte_fallback: bool. Write unknown characters by the pieces "<0x00>" to "<0xFF>".
        pad_id, unk_id, bos_id, eos_id: ints or None. Ids of the special tokens.
        template: a `Template`, the special tokens around a text. None for none.

    Raises:
        ValueError: if a rule is unknown, two pieces are equal or have one id, or `byte_fallback`
            has not all bytes.
        ImportError: if sentencepiece, or on TensorFlow tensorflow-text, is not installed, or,
            where Python tokenizes, regex.

    Example:
        >>> from keras_attn.text import Metaspace
        >>> pieces = [["<unk>", 0.0], ["\u2581", -3.0], ["\u2581the", -1.0], ["\u2581cat", -2.0]]
        >>> rule = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"}
        >>> tokenizer = Metaspace(pieces, pre_tokenizer=rule, unk_id=0)
        >>> ids, lengths = tokenizer.encode(["the cat"])
        >>> ids.numpy().tolist(), tokenizer.decode(ids).numpy().tolist()
        ([[2, 3]], [b'the cat'])

    Differs from the paper: words are split first, by the rules.

    Reference: [Kudo, 2018](https://arxiv.org/abs/1804.10959), section 3.2; merges:
        [Sennrich et al., 2016](https://arxiv.org/abs/1508.07909), section 3.2.
    """

    packages = ("regex", "sentencepiece")

    def __init__(
        self,
        vocabulary,
        merges=None,
        normalizer=None,
        pre_tokenizer=None,
        special_tokens=None,
        *,
        added_tokens=None,
        byte_fallback=False,
        pad_id=None,
        unk_id=None,
        bos_id=None,
        eos_id=None,
        template=None,
    ):
        super().__init__()
        # Not a dict: TensorFlow would wrap its content, and search it for variables.
        self._arguments = types.SimpleNamespace(
            vocabulary=vocabulary,
            merges=merges,
            normalizer=normalizer,
            pre_tokenizer=pre_tokenizer,
            special_tokens=dict(special_tokens or {}),
            added_tokens=dict(added_tokens or {}),
            byte_fallback=byte_fallback,
            pad_id=pad_id,
            unk_id=unk_id,
            bos_id=bos_id,
            eos_id=eos_id,
            template=Template.of(template),
        )
        self.pad_id, self.unk_id, self.bos_id, self.eos_id = pad_id, unk_id, bos_id, eos_id
        self.template = self._arguments.template
        tokens = self._tokens()
        self.vocabulary_size = max(tokens) + 1
        for name, i in {"pad_id": pad_id, "unk_id": unk_id, "eos_id": eos_id}.items():
            wanted = f"one of the {self.vocabulary_size} ids, or None"
            check_that(i is None or 0 <= i < self.vocabulary_size, wanted, **{name: i})
        self._rules = TextRules(normalizer, pre_tokenizer)
        kind = UNIGRAM if merges is None else BPE
        pieces = [*self._pieces()]
        self._model_proto = write_model(pieces, kind, byte_fallback)
        self._processor = processor(self._model_proto)
        # Otherwise no piece and no unknown text crosses the start of a word.
        is_whole = any(SPACE in piece[1:] and type_ == NORMAL for piece, _, type_ in pieces)
        has_space = any(piece == SPACE and type_ == NORMAL for piece, _, type_ in pieces)
        self._splits_words = self._rules.splits and (is_whole or not has_space or kind == UNIGRAM)
        # Equal words are merged once where no merge crosses the start of a word.
        read = [piece for piece, _, type_ in pieces if type_ == NORMAL]
        crosses = any(re.search(f"[^{SPACE}]{SPACE}", piece) for piece in read)
        self._merges_words = kind == BPE and has_space and not crosses

    @property
    def adds_space(self):
        """True if the rules put a space in front of a text, which `decode` removes."""
        return self._rules.adds_space

    def _tokens(self):
        """Return the text of each id that has one."""
        vocabulary = self._arguments.vocabulary
        if isinstance(vocabulary, dict):
            pairs = [(i, piece) for piece, i in vocabulary.items()]
        else:
            pairs = [(i, piece) for i, (piece, _) in enumerate(vocabulary)]
        tokens = dict(pairs)
        check_that(
            len(tokens) == len(pairs) == len(set(tokens.values())),
            "distinct pieces of one id each",
            vocabulary=f"{len(pairs)} pieces",
        )
        more = {**self._arguments.added_tokens, **self._arguments.special_tokens}
        return {**tokens, **{i: token for token, i in more.items()}}

    def get_config(self):
        return vars(self._arguments).copy()

    def vocabulary(self):
        tokens = self._tokens()
        return [tokens.get(i, f"<no token {i}>") for i in range(self.vocabulary_size)]

    def _pieces(self):
        """Yield the text, the score and the type of each id, then of an unknown piece."""
        own, special = self._arguments, set(self._arguments.special_tokens.values())
        if own.merges is None:
            scores = {
                piece: round(score * _SCORE_STEPS) / _SCORE_STEPS for piece, score in own.vocabulary
            }
        else:
            scores = {piece: 0.0 for piece in own.vocabulary if len(piece) == 1}
            for rank, merge in enumerate(own.merges):
                scores.setdefault("".join(merge.split(" ")), -float(rank))
        for i, token in enumerate(self.vocabulary()):
            if i == own.unk_id:
                yield token, 0.0, UNKNOWN
            elif own.byte_fallback and _BYTE.fullmatch(token):
                yield token, 0.0, BYTE
            else:
                # A CONTROL piece is never read from a text.
                is_read = token in scores and i not in special
                yield token, scores.get(token, 0.0), NORMAL if is_read else CONTROL
        if own.unk_id is None:
            yield f"<unknown {self.vocabulary_size}>", 0.0, UNKNOWN

    def _normalized(self, text):
        return self._rules.normalized(valid(text))

    def _split(self, text):
        text = self._rules(valid(text))
        encode = operation(self._model_proto).tokenize
        if not self._splits_words and not self._merges_words:
            return encode(text)
        before = "()" if self._splits_words else f"([^{SPACE}])"
        start = rb"\1" + _WORD_START_BYTES + SPACE.encode()
        marked = tf.strings.regex_replace(text, before + SPACE, start)
        words = tf.strings.split(marked, _WORD_START_BYTES)
        distinct, indices = tf.unique(words.flat_values)
        return words.with_flat_values(tf.gather(encode(distinct), indices)).merge_dims(1, 2)

    def _split_in_python(self, sentences):
        return [np.array(self._ids_of(self._rules(valid(text))), "int32") for text in sentences]

    def _ids_of(self, text):
        if not self._splits_words:
            return self._processor.encode(text)
        words = text.replace(SPACE, _WORD_START + SPACE).split(_WORD_START)
        return [i for row in self._processor.encode(words) for i in row]

    @functools.cached_property
    def _surfaces(self):
        """The bytes of each id, then U+FFFD for ids outside the vocabulary."""
        surfaces = [self._surface(token) for token in self.vocabulary()]
        special = self._arguments.special_tokens.values()
        for i in {*special, self.pad_id, self.bos_id, self.eos_id} - {None}:
            surfaces[i] = b""
        if self.unk_id is not None:
            surfaces[self.unk_id] = REPLACEMENT.encode()
        return np.array([*surfaces, REPLACEMENT.encode()], object)

    def _surface(self, token):
        if self._arguments.byte_fallback and _BYTE.fullmatch(token):
            return bytes.fromhex(token[3:5])
        return token.replace(SPACE, " ").encode()

    def _join(self, pieces):
        surfaces = tf.gather(tf.constant(self._surfaces), pieces)
        return self._joined(tf.strings.reduce_join(surfaces, axis=1))

    def _join_in_python(self, ids):
        return self._joined(b"".join(self._surfaces[ids]))

    def _joined(self, text):
        return replace(valid(text), [("^ ", "")]) if self.adds_space else valid(text)
