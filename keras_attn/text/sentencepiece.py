"""Tokenizer of subword units."""

import functools
import io
import re

import numpy as np

from keras_attn.ops.checks import check_choice, check_sizes
from keras_attn.text.tokenizer import REPLACEMENT, Tokenizer, check_no_string, tf

_SPACE = "\u2581"  # the library's sign for it


class SentencePiece(Tokenizer):
    """Subword units learned from raw text.

        unigram: argmax over segmentations s of x of prod_i p(s_i)        bpe: merges, in order

    A space becomes part of the piece that follows it, so decoding needs no rules of any language:
    text of characters seen in training comes back as it was, except that runs of spaces shrink to
    one and spaces at the ends vanish. Encoding a sentence of T characters takes O(T log T). An
    exported graph contains the model; it needs the operations of TensorFlow Text, but no file.

    Args:
        model_proto: bytes. A serialised SentencePiece model whose ids are pad 0, unk 1, bos 2,
            eos 3, as `SentencePiece.train` makes it.

    Raises:
        ValueError: if `model_proto` is no such model.
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

    def __init__(self, model_proto):
        super().__init__()
        self._processor = read = _processor(model_proto)
        ids = (read.pad_id(), read.unk_id(), read.bos_id(), read.eos_id())
        expected = (self.pad_id, self.unk_id, self.bos_id, self.eos_id)
        if ids != expected:
            raise ValueError(
                f"The ids of pad, unk, bos and eos in `model_proto` must be {expected}. "
                f"Received: {ids}"
            )
        self.vocabulary_size = read.get_piece_size()
        self._model_proto = model_proto

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
            vocabulary_size: int. The most pieces to learn, with the four marks; a small text
                yields fewer. It must hold every character of the text.
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
        # The trainer silently drops an empty sentence, and one with a line end in it.
        lines = [text for sentence in sentences if (text := sentence.replace("\n", " ").strip())]
        if not lines:
            raise ValueError("`sentences` holds no text to learn a vocabulary from.")
        model = io.BytesIO()
        try:
            _packages()[0].SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=model,
                vocab_size=vocabulary_size,
                hard_vocab_limit=False,
                model_type=model_type,
                character_coverage=character_coverage,
                normalization_rule_name=normalization,
                # The trainer refuses a limit below ten.
                max_sentence_length=max(10, *(len(line.encode()) for line in lines)),
                unk_surface=REPLACEMENT,  # the library's own " \u2047 " would add spaces around it
                pad_id=cls.pad_id,
                unk_id=cls.unk_id,
                bos_id=cls.bos_id,
                eos_id=cls.eos_id,
                minloglevel=2,
            )
        except (RuntimeError, OSError) as error:
            raise _readable(error, vocabulary_size, character_coverage, normalization) from error
        return cls(model.getvalue())

    def vocabulary(self):
        return [*self.marks, *self._pieces()[len(self.marks) :]]

    def to_bytes(self):
        return self._model_proto

    @classmethod
    def from_bytes(cls, content):
        return cls(content)

    def _split_in_python(self, sentences):
        return [np.array(ids, "int32") for ids in self._processor.encode(sentences)]

    def _join_in_python(self, ids):
        return self._processor.decode(ids)

    def _split(self, text):
        return self._operation().tokenize(text)

    def _join(self, pieces):
        return self._operation().detokenize(pieces)

    def _pieces(self):
        return [self._processor.id_to_piece(i) for i in range(self.vocabulary_size)]

    @functools.cached_property
    def _surfaces(self):
        texts = [piece.replace(_SPACE, " ") for piece in self._pieces()]
        return self._surfaces_of(texts[len(self.marks) :])

    def _operation(self):
        # Not FastSentencepieceTokenizer: it silently splits BPE models wrongly, and model servers
        # before 2.12 lack it. Not made once and kept: its resource belongs to the kernel that made
        # it, and `keras.utils.set_random_seed` drops every eager kernel. A new one costs nothing,
        # because TensorFlow finds the kernel of the same model again.
        _, tensorflow_text = _packages()
        return tensorflow_text.SentencepieceTokenizer(model=self._model_proto, out_type=tf.int32)


def _packages():
    """Return the optional packages: sentencepiece, and tensorflow_text or None."""
    try:
        import sentencepiece

        if tf is None:
            return sentencepiece, None
        import tensorflow_text
    except ImportError as error:
        raise ImportError(
            "SentencePiece needs the package sentencepiece, and on TensorFlow also "
            "tensorflow-text: pip install 'keras_attn[text]'"
        ) from error
    return sentencepiece, tensorflow_text


def _processor(model_proto):
    # The library takes no bytes at all for a model, one that is not initialised.
    if isinstance(model_proto, bytes) and model_proto:
        try:
            return _packages()[0].SentencePieceProcessor(model_proto=model_proto)
        except RuntimeError:
            pass
    raise ValueError(
        "`model_proto` is not a SentencePiece model, which is bytes; `SentencePiece.load(path)` "
        f"reads a file. Received: model_proto of type {type(model_proto).__name__}."
    )


def _readable(error, vocabulary_size, character_coverage, normalization):
    """Return the trainer's failure as an error about our arguments."""
    received = f"vocabulary_size={vocabulary_size}, character_coverage={character_coverage}"
    too_small = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
    if too_small:
        return ValueError(
            f"`vocabulary_size` must be at least {too_small[1]}, to hold the four marks and every "
            f"character that `character_coverage` asks for. Received: {received}"
        )
    return ValueError(
        f"SentencePiece cannot train with {received}, normalization={normalization!r}: {error}"
    )
