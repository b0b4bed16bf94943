"""Tokenizer of bytes."""

import functools

import numpy as np

from keras_attn.ops.checks import check_that
from keras_attn.text.tokenizers.operations import tf, valid
from keras_attn.text.tokenizers.template import Template
from keras_attn.text.tokenizers.tokenizer import Tokenizer


class Bytes(Tokenizer):
    """One id for each byte of UTF-8, behind those of special tokens.

        encode: b_1 ... b_T -> [S + b_1, ..., S + b_T], S special tokens

    Use it for ByT5 and Perceiver, or to do without a vocabulary.

    No text is unknown. Time is O(T). In a graph it uses operations of TensorFlow itself only. A
    sequence of bytes that is not UTF-8 is read as U+FFFD.

    Args:
        special_tokens: list of the texts of the first ids.
        more_tokens: list of the texts of the ids above the bytes. No text becomes one of either,
            and `decode` drops them.
        pad_id, unk_id, bos_id, eos_id: ints or None. Ids of special tokens.
        template: a `Template`, the special tokens around a text. None ends each text with `eos_id`.

    Raises:
        ValueError: if an id is none of the special tokens'.

    Example:
        >>> from keras_attn.text import Bytes
        >>> ids, lengths = Bytes().encode(["cat", "é"])
        >>> ids.numpy().tolist(), lengths.numpy().tolist()
        ([[102, 100, 119, 1], [198, 172, 1, 0]], [4, 3])

    Differs from the paper: none.

    Reference: [Xue et al., 2021](https://arxiv.org/abs/2105.13626), section 3.1.
    """

    def __init__(
        self,
        special_tokens=("<pad>", "</s>", "<unk>"),
        more_tokens=(),
        *,
        pad_id=0,
        unk_id=2,
        bos_id=None,
        eos_id=1,
        template=None,
    ):
        super().__init__()
        # Arrays: TensorFlow would wrap lists, and search them for variables.
        self._special = np.array([*special_tokens], object)
        self._more = np.array([*more_tokens], object)
        self.vocabulary_size = len(self._special) + 256 + len(self._more)
        ids = {"pad_id": pad_id, "unk_id": unk_id, "bos_id": bos_id, "eos_id": eos_id}
        for name, i in ids.items():
            wanted = f"the id of one of the {len(self._special)} special tokens, or None"
            check_that(i is None or 0 <= i < len(self._special), wanted, **{name: i})
        self.pad_id, self.unk_id, self.bos_id, self.eos_id = pad_id, unk_id, bos_id, eos_id
        end = () if eos_id is None else (eos_id,)
        self.template = Template(middle=end, end=end) if template is None else Template.of(template)

    def get_config(self):
        return {
            "special_tokens": self._special.tolist(),
            "more_tokens": self._more.tolist(),
            "pad_id": self.pad_id,
            "unk_id": self.unk_id,
            "bos_id": self.bos_id,
            "eos_id": self.eos_id,
            "template": self.template,
        }

    def vocabulary(self):
        """Return the texts of all ids; those of the bytes are `<0x00>` to `<0xFF>`."""
        return [*self._special, *(f"<0x{byte:02X}>" for byte in range(256)), *self._more]

    def _split(self, text):
        split = tf.strings.bytes_split(valid(text))
        codes = tf.io.decode_raw(split.flat_values, tf.uint8, fixed_length=1)[:, 0]
        return split.with_flat_values(tf.cast(codes, tf.int32) + len(self._special))

    def _split_in_python(self, sentences):
        texts = [valid(text).encode() for text in sentences]
        return [np.frombuffer(t, "uint8").astype("int32") + len(self._special) for t in texts]

    @functools.cached_property
    def _surfaces(self):
        texts = [b""] * len(self._special) + [bytes([byte]) for byte in range(256)]
        if self.unk_id is not None:
            texts[self.unk_id] = "\ufffd".encode()
        return np.array([*texts, *[b""] * len(self._more), "\ufffd".encode()], object)

    def _join(self, pieces):
        surfaces = tf.gather(tf.constant(self._surfaces), pieces)
        return valid(tf.strings.reduce_join(surfaces, axis=1))

    def _join_in_python(self, ids):
        return valid(b"".join(self._surfaces[ids]))
