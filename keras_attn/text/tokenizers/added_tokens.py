"""Tokens that are cut out of a text before a tokenizer reads the rest."""

import re
import types

import numpy as np

from keras_attn.ops.checks import check_that
from keras_attn.text.tokenizers.loading import from_bytes
from keras_attn.text.tokenizers.operations import (
    WHITE_SPACE,
    load_regex,
    tf,
    valid,
)
from keras_attn.text.tokenizers.tokenizer import Tokenizer

_BORDER = "\ud800".encode(errors="surrogatepass")  # no valid text has these bytes
_SPACES = f"[{WHITE_SPACE}]+"
_WORD = "[\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\u200c\u200d]"
_FLAGS = ("lstrip", "rstrip", "single_word")


class AddedTokens(Tokenizer):
    """Another tokenizer, and tokens that are cut out of a text before it reads the rest.

        "a <tool> b" -> tokenizer("a "), id("<tool>"), tokenizer(" b")

    Use it for words that `add_tokens` added, and for the runs of spaces of Phi and GPT-NeoX.

    Of the tokens that begin at a position the longest is cut. The ids equal those of Hugging Face's
    library. Encoding takes the time of the tokenizer, and O(T) for T characters.

    Args:
        tokenizer: a `Tokenizer` whose vocabulary has the tokens, or the bytes of its file.
        tokens: list of dicts of `content` and `id`. With `lstrip` or `rstrip` a token takes the
            white space on that side; a `single_word` is no part of a longer word; a `normalized`
            one is sought after the normaliser of the tokenizer.

    Raises:
        ValueError: if the tokenizer lacks the id of a token, or a token is empty.
        ImportError: if, where Python tokenizes, regex is not installed.

    Example:
        >>> from keras_attn.text import AddedTokens, ByteLevelBPE
        >>> from keras_attn.text.tokenizers.byte_level_bpe import LETTERS
        >>> vocabulary = {token: i for i, token in enumerate([*LETTERS, "<tool>"])}
        >>> tokens = [{"content": "<tool>", "id": 256}]
        >>> tokenizer = AddedTokens(ByteLevelBPE(vocabulary, []), tokens)
        >>> tokenizer.encode(["a<tool>"])[0].numpy().tolist()
        [[97, 256]]

    Differs from the paper: none.

    Reference: [Wolf et al., 2020](https://arxiv.org/abs/1910.03771).
    """

    def __init__(self, tokenizer, tokens):
        super().__init__()
        if isinstance(tokenizer, bytes):
            tokenizer = from_bytes(tokenizer)
        self.tokenizer = tokenizer
        # Not a list: TensorFlow would wrap it.
        self._arguments = types.SimpleNamespace(tokens=[dict(token) for token in tokens])
        for token in self._arguments.tokens:
            wanted = f"a dict of a content and one of the {tokenizer.vocabulary_size} ids"
            is_known = 0 <= token["id"] < tokenizer.vocabulary_size
            check_that(token["content"] and is_known, wanted, tokens=token)
        self.pad_id, self.unk_id = tokenizer.pad_id, tokenizer.unk_id
        self.bos_id, self.eos_id = tokenizer.bos_id, tokenizer.eos_id
        self.template, self.vocabulary_size = tokenizer.template, tokenizer.vocabulary_size
        self.packages = tuple(sorted({*tokenizer.packages, "regex"}))
        raw = [token for token in self._arguments.tokens if not token.get("normalized")]
        normalized = [token for token in self._arguments.tokens if token.get("normalized")]
        config = tokenizer.get_config()
        if normalized and config.get("normalizer") is not None:
            self._without_normalizer = type(tokenizer)(**{**config, "normalizer": None})
        else:  # the others give a part of a normalised text back as it is
            self._without_normalizer = tokenizer
        self._stages = types.SimpleNamespace(
            raw=_Cutter(raw) if raw else None,
            normalized=_Cutter(
                [{**t, "content": tokenizer._normalized(t["content"])} for t in normalized]
            )
            if normalized
            else None,
        )
        # An export holds the tables that are attributes.
        self._tables = [cutter.ids for cutter in vars(self._stages).values() if cutter]

    def get_config(self):
        return {"tokenizer": self.tokenizer.to_bytes(), **vars(self._arguments)}

    def vocabulary(self):
        return self.tokenizer.vocabulary()

    @property
    def _surfaces(self):
        return self.tokenizer._surfaces

    def _join(self, pieces):
        return self.tokenizer._join(pieces)

    def _join_in_python(self, ids):
        return self.tokenizer._join_in_python(ids)

    def _split(self, text):
        return self._cut(self._stages.raw, valid(text), self._split_normalized)

    def _split_normalized(self, text):
        if self._stages.normalized is None:
            return self.tokenizer._split(text)
        text = self.tokenizer._normalized(text)
        return self._cut(self._stages.normalized, text, self._without_normalizer._split)

    def _cut(self, cutter, text, split):
        """Return the ids of a string tensor, the texts between the tokens split by a function."""
        if cutter is None:
            return split(text)
        pieces, ids = cutter.cut(text)
        is_token = ids >= 0
        rest = split(tf.where(is_token, "", pieces.flat_values))
        tokens = tf.ragged.boolean_mask(tf.expand_dims(ids, 1), tf.expand_dims(is_token, 1))
        return pieces.with_flat_values(tf.concat([tokens, rest], axis=1)).merge_dims(1, 2)

    def _split_in_python(self, sentences):
        rows = [self._parts(valid(text)) for text in sentences]
        texts = [part for row in rows for part in row if isinstance(part, str)]
        ids = iter(self._without_normalizer._split_in_python(texts))
        empty = np.zeros(0, "int32")
        return [
            np.concatenate(
                [empty, *(next(ids) if isinstance(p, str) else [p] for p in row)]
            ).astype("int32")
            for row in rows
        ]

    def _parts(self, text):
        """Return the ids of tokens and the texts between them."""
        parts = self._stages.raw.cut_in_python(text) if self._stages.raw else [text]
        if self._stages.normalized is None:
            return parts
        cut, normalized = self._stages.normalized.cut_in_python, self.tokenizer._normalized
        return [
            part
            for outer in parts
            for part in (cut(normalized(outer)) if isinstance(outer, str) else [outer])
        ]


class _Cutter:
    """Cut tokens out of texts, in a graph or in Python."""

    def __init__(self, tokens):
        self._tokens = {token["content"]: token for token in tokens if token["content"]}
        contents = sorted(self._tokens, key=len, reverse=True)
        self._expression = "|".join(map(re.escape, contents))
        self._in_python = re.compile("|".join(map(re.escape, contents)))
        self._has = {flag: self._contents_with(flag) for flag in _FLAGS}
        self.ids = None
        if tf is not None:
            ids = tf.lookup.KeyValueTensorInitializer(
                contents, [self._tokens[content]["id"] for content in contents], tf.string, tf.int32
            )
            self.ids = tf.lookup.StaticHashTable(ids, default_value=-1)

    def _contents_with(self, flag):
        return [content for content, token in self._tokens.items() if token.get(flag)]

    def cut(self, text):
        """Return the pieces of a string tensor (B,), ragged, and their ids, -1 for other texts."""
        text = tf.strings.regex_replace(text, self._expression, _BORDER + rb"\0" + _BORDER)
        pieces = tf.strings.split(text, _BORDER)
        pieces = tf.ragged.boolean_mask(pieces, pieces != "")
        ids = self.ids.lookup(pieces.flat_values)
        if self._has["single_word"]:
            pieces, ids = self._without_parts_of_words(pieces, ids)
        if self._has["lstrip"] or self._has["rstrip"]:
            before, after = _neighbours(pieces)
            text = pieces.flat_values
            strips = _is_one_of(after, self._has["lstrip"]) & (ids < 0)
            text = tf.where(strips, tf.strings.regex_replace(text, f"{_SPACES}$", ""), text)
            strips = _is_one_of(before, self._has["rstrip"]) & (ids < 0)
            text = tf.where(strips, tf.strings.regex_replace(text, f"^{_SPACES}", ""), text)
            pieces = pieces.with_flat_values(text)
        return pieces, ids

    def _without_parts_of_words(self, pieces, ids):
        """Join the words that are a part of a longer one to the texts around them."""
        before, after = _neighbours(pieces)
        is_part = tf.strings.regex_full_match(before, f"(?s).*{_WORD}")
        is_part |= tf.strings.regex_full_match(after, f"(?s){_WORD}.*")
        is_part &= _is_one_of(pieces.flat_values, self._has["single_word"])
        ids = tf.where(is_part, -1, ids)
        rows = pieces.value_rowids()
        is_text = tf.cast(ids < 0, tf.int64)
        joins = is_text[1:] * is_text[:-1] * tf.cast(rows[1:] == rows[:-1], tf.int64)
        groups = tf.concat([tf.zeros_like(rows[:1]), tf.cumsum(1 - joins)], 0)
        count = tf.reduce_max(groups, keepdims=True)[0] + 1 if groups.shape[0] != 0 else 0
        text = tf.strings.unsorted_segment_join(pieces.flat_values, groups, count)
        rows = tf.math.unsorted_segment_max(rows, groups, count)
        ids = tf.math.unsorted_segment_max(ids, groups, count)
        return tf.RaggedTensor.from_value_rowids(text, rows, pieces.nrows()), ids

    def cut_in_python(self, text):
        """Return the ids of tokens and the texts between them."""
        parts, start = [], 0
        for match in self._in_python.finditer(text):
            token = self._tokens[match[0]]
            before, after = text[: match.start()], text[match.end() :]
            if token.get("single_word") and _is_part(before, after):
                continue
            end = match.start()
            if token.get("lstrip"):
                end = len(before.rstrip())
            if start < end:
                parts.append(text[start:end])
            parts.append(token["id"])
            start = match.end()
            if token.get("rstrip"):
                start = len(text) - len(after.lstrip())
        return [*parts, text[start:]] if start < len(text) else parts


def _neighbours(pieces):
    """Return the piece before and after each, "" where a row has none."""
    text, rows = pieces.flat_values, pieces.value_rowids()
    same = rows[1:] == rows[:-1]
    empty = tf.zeros_like(text[:1])
    before = tf.concat([empty, tf.where(same, text[:-1], "")], 0)
    after = tf.concat([tf.where(same, text[1:], ""), empty], 0)
    return before, after


def _is_one_of(text, contents):
    if not contents:
        return tf.zeros_like(text, tf.bool)
    return tf.strings.regex_full_match(text, "|".join(map(re.escape, contents)))


def _is_part(before, after):
    word = load_regex().compile(_WORD)
    return bool(before and word.match(before[-1]) or after and word.match(after[0]))
