"""Tokenizer of GPT-2, RoBERTa, LLaMA 3 and Qwen: pairs of bytes, merged in learned order."""

import collections
import functools
import types

import numpy as np

from keras_attn.ops.checks import check_choice, check_that
from keras_attn.text.tokenizers.operations import (
    PUNCTUATION,
    WHITE_SPACE,
    load_regex,
    normalize,
    replace,
    tf,
    valid,
)
from keras_attn.text.tokenizers.sentencepiece_model import (
    BPE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    operation,
    processor,
    write_model,
)
from keras_attn.text.tokenizers.template import Template
from keras_attn.text.tokenizers.tokenizer import REPLACEMENT, Tokenizer

_ENDS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
# The expressions in Hugging Face's files, of which each character of a text is a part of a match.
PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": (_ENDS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _SPACES),
    "qwen2": _ENDS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + _SPACES,
    "o200k": (
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDS}?"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDS}?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _SPACES
    ),
}
# Steps before or after one of these: what matches is a word, and so is the text up to the next one.
STEPS = {
    "digits": r"\p{N}",
    "runs of digits": r"\p{N}+",
    "three digits": "[0-9][0-9][0-9]",
    "punctuation": rf"[{PUNCTUATION}]+",
    "bloom": r" ?[^(\s|.,!?…。，、।۔،)]+",
}


# A surrogate, which no valid text has, in three bytes: the end of a word in a graph.
_END, _END_BYTES = r"\x{D800}", "\ud800".encode(errors="surrogatepass")


def _letters():
    """Return the letter of each byte: itself if it prints, else one from U+0100 on."""
    prints = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in prints else next(others)) for byte in range(256)]


LETTERS = _letters()
_BYTES = {letter: byte for byte, letter in enumerate(LETTERS)}


class ByteLevelBPE(Tokenizer):
    """Merges of the bytes of words, as the tokenizers of GPT-2 and its successors do.

        word -> bytes b_1 ... b_n;   while a pair is in merges: merge the pair learned first

    Use it for GPT-2, RoBERTa, BART, LLaMA 3 and Qwen, from `vocab.json` and `merges.txt`.

    No text is unknown, and `decode` gives valid UTF-8 back byte by byte. The ids equal those of
    Hugging Face's tokenizer, except that special tokens, such as "<|endoftext|>", are plain text if
    they occur in a text. A pair is merged if its join is a piece, as in SentencePiece, whose
    operation merges in the graph. Encoding a word of n bytes takes O(n log n); a batch encodes each
    of its words once.

    Args:
        vocabulary: dict of the id of each token, in the letters that GPT-2 writes for bytes.
        merges: list of "a b", the pairs in the order in which they were learned.
        pattern: "gpt2", "llama3", "qwen2" or "o200k". The expression that splits a text into words.
            Or a list of steps, each of which splits the words of the one before: one of these, or
            "digits", "runs of digits", "three digits", "punctuation" or "bloom". Those after
            "bytes" split the letters that stand for bytes, as Falcon does.
        special_tokens: dict of the ids of more tokens. No text becomes one; `decode` drops them.
        added_tokens: dict of the ids of more tokens, which `AddedTokens` cuts out of texts;
            `decode` writes them.
        pad_id, bos_id, eos_id: ints or None. Ids of the special tokens.
        template: a `Template`, the special tokens around a text. None for none.
        normal_form: "NFC" or None. Normal form of Unicode to bring a text to.
        add_space: bool. Put a space in front of a text that begins with none.
        ignore_merges: bool. A word in the vocabulary is one token even if no merges make it.

    Raises:
        ValueError: if `pattern` or `normal_form` is another, `vocabulary` lacks the letter of a
            byte, or two tokens have one id.
        ImportError: if sentencepiece, or on TensorFlow tensorflow-text, is not installed, or,
            where Python tokenizes, regex.

    Example:
        >>> from keras_attn.text import ByteLevelBPE
        >>> from keras_attn.text.tokenizers.byte_level_bpe import LETTERS
        >>> tokens = [*LETTERS, "ca", "cat", "<|endoftext|>"]
        >>> vocabulary = {token: i for i, token in enumerate(tokens)}
        >>> tokenizer = ByteLevelBPE(vocabulary, ["c a", "ca t"], eos_id=258)
        >>> ids, lengths = tokenizer.encode(["cats", "a"])
        >>> ids.numpy().tolist(), lengths.numpy().tolist()
        ([[257, 115], [97, 258]], [2, 1])

    Differs from the paper: merges bytes instead of characters, within words of an expression.

    Reference: [Sennrich et al., 2016](https://arxiv.org/abs/1508.07909), section 3.2; bytes:
        [Radford et al., 2019](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf),
        section 2.2.
    """

    packages = ("regex", "sentencepiece")

    def __init__(
        self,
        vocabulary,
        merges,
        pattern="gpt2",
        special_tokens=None,
        *,
        pad_id=None,
        bos_id=None,
        eos_id=None,
        template=None,
        normal_form=None,
        add_space=False,
        ignore_merges=False,
        added_tokens=None,
    ):
        super().__init__()
        for name in [pattern] if isinstance(pattern, str) else pattern:
            check_choice((*PATTERNS, *STEPS, "bytes"), pattern=name)
        check_choice((None, "NFC"), normal_form=normal_form)
        check_that(
            set(LETTERS) <= set(vocabulary),
            "a dict that holds the letter of every byte",
            vocabulary=f"{len(vocabulary)} tokens",
        )
        more = {**(added_tokens or {}), **(special_tokens or {})}
        ids = collections.Counter({**vocabulary, **more}.values())
        repeated = [i for i, count in ids.items() if count > 1]
        check_that(not repeated, "a dict of one id a token", vocabulary=f"{repeated[:5]} repeated")
        # Not a dict: TensorFlow would wrap its content, and search it for variables.
        self._arguments = types.SimpleNamespace(
            vocabulary=dict(vocabulary),
            merges=list(merges),
            pattern=pattern if isinstance(pattern, str) else [*pattern],
            special_tokens=dict(special_tokens or {}),
            pad_id=pad_id,
            bos_id=bos_id,
            eos_id=eos_id,
            template=Template.of(template),
            normal_form=normal_form,
            add_space=add_space,
            ignore_merges=ignore_merges,
            added_tokens=dict(added_tokens or {}),
        )
        self.pad_id, self.unk_id, self.bos_id, self.eos_id = pad_id, None, bos_id, eos_id
        self.template = self._arguments.template
        self.vocabulary_size = max(ids) + 1
        for name, i in {"pad_id": pad_id, "bos_id": bos_id, "eos_id": eos_id}.items():
            wanted = f"one of the {self.vocabulary_size} ids, or None"
            check_that(i is None or 0 <= i < self.vocabulary_size, wanted, **{name: i})
        self._splitter = WordSplitter(pattern, normal_form, add_space)
        self._model_proto = write_model(self._pieces(), BPE)
        self._processor = processor(self._model_proto)
        if tf is not None and ignore_merges:
            whole = tf.lookup.KeyValueTensorInitializer(
                [*vocabulary], [*vocabulary.values()], tf.string, tf.int32
            )
            self._whole_words = tf.lookup.StaticHashTable(whole, default_value=-1)

    def get_config(self):
        return vars(self._arguments).copy()

    def vocabulary(self):
        own = self._arguments
        tokens = {**own.vocabulary, **own.added_tokens, **own.special_tokens}
        texts = {i: token for token, i in tokens.items()}
        return [texts.get(i, f"<no token {i}>") for i in range(self.vocabulary_size)]

    def _pieces(self):
        """Yield the text, the score and the type of each id, then of the unknown piece."""
        special = {**self._arguments.added_tokens, **self._arguments.special_tokens}
        scores = {letter: 0.0 for letter in LETTERS}  # no merge makes one letter
        for rank, merge in enumerate(self._arguments.merges):
            scores.setdefault(merge.replace(" ", ""), -float(rank))
        for token in self.vocabulary():
            # A CONTROL piece is never read from a text.
            is_read = token in scores and token not in special
            yield token, scores.get(token, 0.0), NORMAL if is_read else CONTROL
        yield f"<unknown {self.vocabulary_size}>", 0.0, UNKNOWN

    def _normalized(self, text):
        return self._splitter.normalized(valid(text))

    def _split(self, text):
        words = self._splitter.split(text)
        distinct, indices = tf.unique(words.flat_values)
        ids = self._merged(as_letters(distinct))
        return words.with_values(tf.gather(ids, indices)).merge_dims(1, 2)

    def _merged(self, words):
        """Return the ids of words in letters, ragged (W, ids)."""
        words = self._splitter.split_letters(words)
        if isinstance(words, tf.RaggedTensor):
            return words.with_values(self._merged_words(words.flat_values)).merge_dims(1, 2)
        return self._merged_words(words)

    def _merged_words(self, words):
        ids = operation(self._model_proto).tokenize(words)
        if not self._arguments.ignore_merges:
            return ids
        whole = self._whole_words.lookup(words)[:, None]
        is_whole = whole >= 0
        is_part = tf.repeat(~is_whole[:, 0], ids.row_lengths())
        parts = tf.ragged.boolean_mask(ids, ids.with_values(is_part))
        return tf.concat([tf.ragged.boolean_mask(whole, is_whole), parts], axis=1)

    def _split_in_python(self, sentences):
        rows = [self._splitter.split_in_python(text) for text in sentences]
        ids = {word: self._merged_in_python(word) for row in rows for word in row}
        return [np.array([i for word in row for i in ids[word]], "int32") for row in rows]

    def _merged_in_python(self, word):
        words = self._splitter.split_letters_in_python(as_letters_in_python(word))
        return [i for letters in words for i in self._merged_word_in_python(letters)]

    def _merged_word_in_python(self, letters):
        whole = self._arguments.vocabulary.get(letters) if self._arguments.ignore_merges else None
        return self._processor.encode(letters) if whole is None else [whole]

    @functools.cached_property
    def _surfaces(self):
        """The bytes of each id, then U+FFFD for ids outside the vocabulary."""
        tokens, special = self.vocabulary(), self._arguments.special_tokens.values()
        silent = {*special, self.pad_id, self.bos_id, self.eos_id}
        surfaces = [b"" if i in silent else _bytes_of(token) for i, token in enumerate(tokens)]
        return np.array([*surfaces, REPLACEMENT.encode()], object)

    def _join(self, pieces):
        surfaces = tf.gather(tf.constant(self._surfaces), pieces)
        return valid(tf.strings.reduce_join(surfaces, axis=1))

    def _join_in_python(self, ids):
        return valid(b"".join(self._surfaces[ids]))


def _bytes_of(token):
    """Return the bytes that a token's letters stand for; other tokens stand for themselves."""
    if set(token) <= _BYTES.keys():
        return bytes(_BYTES[letter] for letter in token)
    return token.encode()


class WordSplitter:
    """Split texts into words by the steps of a tokenizer.

    Args:
        pattern: str, or a list of them. Names in `PATTERNS` and `STEPS`, and "bytes".
        normal_form: "NFC" or None.
        add_space: bool. Put a space in front of a text that begins with none.
    """

    def __init__(self, pattern, normal_form=None, add_space=False):
        self._normal_form, self._add_space = normal_form, add_space
        steps = [pattern] if isinstance(pattern, str) else [*pattern]
        num_text_steps = steps.index("bytes") if "bytes" in steps else len(steps)
        self._text_steps = [_Step(name) for name in steps[:num_text_steps]]
        self._letter_steps = [_Step(name) for name in steps[num_text_steps + 1 :]]

    def _prepared(self, text):
        text = self.normalized(valid(text))
        return replace(text, [("^([^ ])", r" \1")]) if self._add_space else text

    def normalized(self, text):
        """Return a string tensor or a str in the normal form."""
        return text if self._normal_form is None else normalize(text, self._normal_form)

    def split(self, text):
        """Return the words of a string tensor (B,), ragged (B, words), some of them empty."""
        return _split(self._prepared(text), self._text_steps)

    def split_letters(self, words):
        """Return the parts of words in letters, a string tensor (W,), ragged; or the words."""
        return _split(words, self._letter_steps) if self._letter_steps else words

    def split_in_python(self, text):
        """Return the words of a str or of bytes."""
        return _split_in_python([self._prepared(text)], self._text_steps)

    def split_letters_in_python(self, word):
        """Return the parts of a word in letters."""
        return _split_in_python([word], self._letter_steps)


def _split(text, steps):
    for step in steps:
        text = step.mark(text)
    return tf.strings.split(text, _END_BYTES)


def _split_in_python(words, steps):
    for step in steps:
        words = [part for word in words for part in step.split_in_python(word)]
    return words


class _Step:
    """Split words by an expression."""

    def __init__(self, name):
        self._is_whole = name in PATTERNS
        no_space, space = f"[^{WHITE_SPACE}]", f"[{WHITE_SPACE}]"
        written = {**PATTERNS, **STEPS}[name].replace(r"[^\s", no_space[:-1])
        written = written.replace(r"[^(\s", f"[^({WHITE_SPACE}").replace(r"\S", no_space)
        self._in_python = written.replace(r"\s", space)
        # TensorFlow's expressions have no look-ahead: `\s+(?!\S)` matches white space up to its
        # last character where a word follows, and so does `\s+` up to the end of a word that is
        # put there.
        in_graph = written.replace(rf"\s+(?!{no_space})|", "").replace(r"\s", space)
        in_graph = in_graph.replace(r"\p{N}]", rf"\p{{N}}{_END}]")
        self._in_graph = in_graph.replace("[^(", f"[^{_END}(")
        last = space
        if name != "gpt2":  # the others end a word after a line end
            last = space.replace("\t-\r", "\t\x0b\x0c")
        self._before_last = f"({space})({last})({no_space[:-1]}{_END}])"

    def mark(self, text):
        """Put an end behind each word of a string tensor, or around it."""
        # Not `regex_split`, which takes twice as long.
        if not self._is_whole:
            return tf.strings.regex_replace(text, self._in_graph, _END_BYTES + rb"\0" + _END_BYTES)
        add_end = rb"\1" + _END_BYTES + rb"\2\3"
        text = tf.strings.regex_replace(text, self._before_last, add_end)
        return tf.strings.regex_replace(text, self._in_graph, rb"\0" + _END_BYTES)

    def split_in_python(self, word):
        """Return the parts of a word."""
        if self._is_whole:
            return load_regex().findall(self._in_python, word)
        return [part for part in load_regex().split(f"({self._in_python})", word) if part]


def as_letters(words):
    """Write each byte of words, a string tensor (W,), as its letter."""
    split = tf.strings.bytes_split(words)
    codes = tf.io.decode_raw(split.flat_values, tf.uint8, fixed_length=1)[:, 0]
    letters = tf.gather(tf.constant(LETTERS), tf.cast(codes, tf.int32))
    return tf.strings.reduce_join(split.with_flat_values(letters), axis=1)


def as_letters_in_python(word):
    """Write each byte of a str as its letter."""
    return "".join(LETTERS[byte] for byte in word.encode())
