"""Tokenizer of Unicode characters."""

import collections
import functools

from keras_attn.ops.checks import check_sizes
from keras_attn.text.tokenizers import vocabularies
from keras_attn.text.tokenizers.tokenizer import REPLACEMENT, Tokenizer, check_no_string, tf

_NUM_SPECIAL = len(Tokenizer.default_special_tokens)


class Characters(Tokenizer):
    """One id for each Unicode character.

        encode: c_1 ... c_T -> [4 + index(c_1), ..., 4 + index(c_T), eos]

    For models of characters and for text with a small alphabet. Time is O(T). In a graph it uses
    operations of TensorFlow itself only. A sequence of bytes that is not UTF-8 is read as U+FFFD,
    which is never in the vocabulary.

    Args:
        characters: str. The vocabulary, each character once; the first gets id 4.

    Raises:
        ValueError: if `characters` is empty, repeats one, or has U+FFFD or a lone surrogate.

    Example:
        >>> from keras_attn.text import Characters
        >>> tokenizer = Characters("abc")
        >>> ids, lengths = tokenizer.encode(["cab", "d"])
        >>> ids.numpy().tolist(), lengths.numpy().tolist()
        ([[6, 4, 5, 3], [1, 3, 0, 0]], [4, 2])

    Differs from the paper: Unicode characters instead of bytes.

    Reference: [Al-Rfou et al., 2018](https://arxiv.org/abs/1808.04444), section 3; U+FFFD: The
        Unicode Standard, section 3.9, "U+FFFD Substitution of Maximal Subparts".
    """

    def __init__(self, characters):
        super().__init__()
        if not isinstance(characters, str) or not characters:
            raise ValueError(
                "`characters` must be a string of at least one character. "
                f"Received: characters={characters!r}."
            )
        for character, count in collections.Counter(characters).items():
            if count > 1:
                raise ValueError(f"`characters` must not repeat one. Received: {character!r}")
            if not vocabularies.is_learnable(character):
                raise ValueError(
                    "`characters` must not have U+FFFD, which stands for unknown characters, nor "
                    f"lone surrogates. Received: {character!r}"
                )
        self.vocabulary_size = _NUM_SPECIAL + len(characters)
        self._characters = characters
        self._surfaces = self._surfaces_of(characters)
        if tf is not None:
            ids = tf.range(_NUM_SPECIAL, self.vocabulary_size, dtype=tf.int32)
            table = tf.lookup.KeyValueTensorInitializer(tf.constant(list(characters)), ids)
            self._ids = tf.lookup.StaticHashTable(table, default_value=self.unk_id)

    @classmethod
    def train(cls, sentences, vocabulary_size=None):
        """Return a tokenizer of the characters of a text, the most frequent first.

        Args:
            sentences: iterable of str.
            vocabulary_size: int. The most ids, the four special tokens included; None takes every
                character.

        Raises:
            ValueError: if `vocabulary_size` is too small, or the sentences hold no character.
        """
        limit = None
        if vocabulary_size is not None:
            check_sizes(least=_NUM_SPECIAL + 1, vocabulary_size=vocabulary_size)
            limit = vocabulary_size - _NUM_SPECIAL
        check_no_string(sentences=sentences)
        return cls(vocabularies.most_frequent_characters(sentences, limit))

    def vocabulary(self):
        return [*self.default_special_tokens, *self._characters]

    def to_bytes(self):
        return vocabularies.write_characters(self._characters)

    @classmethod
    def from_bytes(cls, content):
        return cls(vocabularies.read_characters(content))

    @functools.cached_property
    def _id_of_code(self):
        return vocabularies.character_table(self._characters)

    def _split_in_python(self, sentences):
        texts = [s.decode(errors="replace") if isinstance(s, bytes) else s for s in sentences]
        return [vocabularies.split_characters(text, self._id_of_code) for text in texts]

    def _join_in_python(self, ids):
        return b"".join(self._surfaces[ids]).decode()

    def _split(self, text):
        split = tf.strings.unicode_split(
            text, "UTF-8", errors="replace", replacement_char=ord(REPLACEMENT)
        )
        return split.with_flat_values(self._ids.lookup(split.flat_values))

    def _join(self, pieces):
        # `pad_id` is written as the empty string.
        surfaces = tf.gather(tf.constant(self._surfaces), pieces.to_tensor(self.pad_id))
        return tf.strings.reduce_join(surfaces, axis=1)
