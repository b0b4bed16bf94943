"""Tokenizer of subword units that a SentencePiece model holds."""

import functools
import types

import numpy as np

from keras_attn.ops.checks import check_choice, check_pad_id, check_sizes, check_that
from keras_attn.text.tokenizers.operations import load_sentencepiece, tf, valid
from keras_attn.text.tokenizers.sentencepiece_model import operation, processor, with_unknown_text
from keras_attn.text.tokenizers.template import Template
from keras_attn.text.tokenizers.tokenizer import REPLACEMENT, Tokenizer, check_no_string
from keras_attn.text.tokenizers.vocabularies import train_sentencepiece

_SPACE = "\u2581"  # the library's sign for it


class SentencePiece(Tokenizer):
    """Subword units learned from raw text.

        unigram: argmax over segmentations s of x of prod_i p(s_i)        bpe: merges, in order

    A space becomes part of the piece that follows it, so decoding needs no rules of any language:
    text of characters seen in training comes back as it was, except that runs of spaces shrink to
    one and spaces at the ends vanish. Encoding a sentence of T characters takes O(T log T). An
    exported graph contains the model; it needs the operations of TensorFlow Text, but no file.

    The special ids are those of the model. A model that has padding and no first token, such as
    T5's, starts its targets with `pad_id`: `bos_id` is `pad_id`. The ids are those of the
    SentencePiece library. Hugging Face's own code differs from it in some combining characters, for
    LLaMA in texts that begin with a space, and in texts in which a special token, "</s>", occurs.

    Args:
        model_proto: bytes. A serialised SentencePiece model.
        template: a `Template`, the special tokens around a text. None ends each text with `eos_id`,
            if the model has one.
        special_tokens: dict of the ids of more tokens, such as T5's `<extra_id_0>`, above those of
            the model. No text becomes such an id, and `decode` drops them.
        pad_id: int. Id of padding, if the model has none.

    Raises:
        ValueError: if `model_proto` is no model.
        ImportError: if sentencepiece, or on TensorFlow tensorflow-text, is not installed.

    Example:
        >>> from keras_attn.text import SentencePiece
        >>> tokenizer = SentencePiece.train(["the cat sat", "the cat ran"], vocabulary_size=20)
        >>> ids, lengths = tokenizer.encode(["the cat", ""])
        >>> tokenizer.decode(ids).numpy().tolist()
        [b'the cat', b'']

    Differs from the paper: no Unicode normalisation by default, so that decoded text can be
    compared with the text itself.

    Reference: [Kudo and Richardson, 2018](https://arxiv.org/abs/1808.06226), section 3; unigram:
        [Kudo, 2018](https://arxiv.org/abs/1804.10959), section 3.2.
    """

    packages = ("sentencepiece",)

    def __init__(self, model_proto, template=None, special_tokens=None, pad_id=None):
        super().__init__()
        self._processor = read = processor(model_proto)
        ids = (read.pad_id(), read.unk_id(), read.bos_id(), read.eos_id())
        self.pad_id, self.unk_id, self.bos_id, self.eos_id = (None if i < 0 else i for i in ids)
        if self.bos_id is None:
            self.bos_id = self.pad_id
        self.pad_id = self.pad_id if pad_id is None else pad_id
        self.template = self._own_template() if template is None else Template.of(template)
        # Not a dict: TensorFlow would wrap its content, and search it for variables.
        self._arguments = types.SimpleNamespace(
            model_proto=model_proto,
            template=self.template,
            special_tokens=dict(special_tokens or {}),
            pad_id=pad_id,
        )
        self._num_pieces = read.get_piece_size()
        for token, i in self._arguments.special_tokens.items():
            wanted = f"a dict of ids from {self._num_pieces} on, above those of the model"
            check_that(i >= self._num_pieces, wanted, special_tokens={token: i})
        special_ids = self._arguments.special_tokens.values()
        self.vocabulary_size = max(self._num_pieces, *(i + 1 for i in special_ids), 0)
        check_pad_id(pad_id, self.vocabulary_size)

    @classmethod
    def train(
        cls,
        sentences,
        vocabulary_size,
        model_type="unigram",
        *,
        character_coverage=1.0,
        normalization="identity",
    ):
        """Learn a vocabulary; the same sentences in the same order give the same model.

        Args:
            sentences: iterable of str.
            vocabulary_size: int. The most pieces to learn, the four special tokens included; a
                small text yields fewer. It must hold every character of the text.
            model_type: "unigram" or "bpe".
            character_coverage: float. Share of the text's characters that get a piece, the rarest
                being left out. All by default; 0.9995 suits a large text in Chinese or Japanese.
            normalization: "identity", or one of SentencePiece's rules, such as "nmt_nfkc".

        Returns:
            A `SentencePiece`.

        Raises:
            ValueError: if an argument is out of range or the sentences hold no text.
        """
        check_choice(("unigram", "bpe"), model_type=model_type)
        check_sizes(vocabulary_size=vocabulary_size)
        check_no_string(sentences=sentences)
        load_sentencepiece()  # or the error that names the extra
        model = train_sentencepiece(
            sentences, vocabulary_size, model_type, character_coverage, normalization
        )
        return cls(model)

    def _own_template(self):
        end = () if self.eos_id is None else (self.eos_id,)
        return Template(middle=end, end=end)

    def vocabulary(self):
        pieces = [self._processor.id_to_piece(i) for i in range(self._num_pieces)]
        special = {i: token for token, i in self._arguments.special_tokens.items()}
        more = range(self._num_pieces, self.vocabulary_size)
        return pieces + [special.get(i, f"<no token {i}>") for i in more]

    def get_config(self):
        return vars(self._arguments).copy()

    def to_bytes(self):
        # A model with nothing besides is the file that every program of SentencePiece reads.
        arguments = self._arguments
        if (
            arguments.special_tokens
            or arguments.pad_id is not None
            or self.template != self._own_template()
        ):
            return super().to_bytes()
        return arguments.model_proto

    @classmethod
    def from_bytes(cls, content):
        return super().from_bytes(content) if content.startswith(b"{") else cls(content)

    def _split_in_python(self, sentences):
        return [np.array(ids, "int32") for ids in self._processor.encode([*map(valid, sentences)])]

    def _join_in_python(self, ids):
        ids = [i for i in ids if i < self._num_pieces]
        return self._decoder.decode(ids)

    def _split(self, text):
        return operation(self._arguments.model_proto).tokenize(valid(text))

    def _join(self, pieces):
        if self.vocabulary_size > self._num_pieces:
            pieces = tf.ragged.boolean_mask(pieces, pieces < self._num_pieces)
        return operation(self._decoded_proto).detokenize(pieces)

    @functools.cached_property
    def _surfaces(self):
        pieces = [self._surface(i) for i in range(self._num_pieces)]
        return np.array(pieces + [b""] * (self.vocabulary_size - self._num_pieces), object)

    def _surface(self, i):
        model, piece = self._processor, self._processor.id_to_piece(i)
        if model.is_control(i):
            return b""
        if model.is_byte(i):
            return bytes.fromhex(piece[3:5])  # of "<0x0A>"
        return (REPLACEMENT if model.is_unknown(i) else piece.replace(_SPACE, " ")).encode()

    @functools.cached_property
    def _decoder(self):
        return processor(self._decoded_proto)

    @functools.cached_property
    def _decoded_proto(self):
        """The model, with U+FFFD as the text of its unknown piece."""
        is_ours = self._processor.decode([self.unk_id]) == REPLACEMENT
        proto = self._arguments.model_proto
        return proto if is_ours else with_unknown_text(proto, REPLACEMENT)
