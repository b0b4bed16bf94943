"""Tokenizer of Marian's translation models: two SentencePiece models and one vocabulary."""

import re
import types

import numpy as np

from keras_attn.ops.checks import check_that
from keras_attn.text.tokenizers.operations import tf, valid
from keras_attn.text.tokenizers.sentencepiece_model import operation, processor
from keras_attn.text.tokenizers.template import Template
from keras_attn.text.tokenizers.tokenizer import REPLACEMENT, Tokenizer

_CODE = r"(?s)^>>.*?<<"  # of the language to translate to
_SPECIAL_TOKENS = ("<pad>", "<unk>", "</s>")


class Marian(Tokenizer):
    """Subword units of one model for source texts and of another for targets, with ids of a third.

        encode: ">>de<< a b" -> [id(">>de<<"), id(piece_1), ..., eos]

    Use it for Marian and OPUS-MT, from `source.spm`, `target.spm` and `vocab.json`.

    `encode` reads source texts and `decode` writes target texts; `for_targets()` encodes target
    texts. A text that begins with ">>" and holds "<<" begins with the code of a language, which is
    one token. The ids equal those of Hugging Face's tokenizer, except that special tokens, such as
    "</s>", are plain text if they occur in a text. `bos_id` is `pad_id`, with which Marian's
    decoders start. Encoding a sentence of T characters takes O(T log T).

    Args:
        source_model, target_model: bytes. Serialised SentencePiece models.
        vocabulary: dict of the id of each piece, `<pad>`, `<unk>` and `</s>` among them.
        target_vocabulary: dict. The vocabulary of target texts, if it differs. These special tokens
            have the same ids in both.

    Raises:
        ValueError: if the bytes are no SentencePiece model, a vocabulary lacks one of the three, or
            their ids differ.
        ImportError: if sentencepiece, or on TensorFlow tensorflow-text, is not installed.

    Example:
        >>> from keras_attn.text import Marian, SentencePiece
        >>> model = SentencePiece.train(["the cat sat"], vocabulary_size=20)
        >>> pieces = ["</s>", "<unk>", *model.vocabulary()[4:], ">>de<<", "<pad>"]
        >>> ids = {piece: i for i, piece in enumerate(pieces)}
        >>> tokenizer = Marian(model.to_bytes(), model.to_bytes(), ids)
        >>> ids, lengths = tokenizer.encode([">>de<< the cat"])
        >>> tokenizer.decode(ids).numpy().tolist()
        [b'>>de<< the cat']

    Differs from the paper: no normalisation of punctuation before the models.

    Reference: [Junczys-Dowmunt et al., 2018](https://arxiv.org/abs/1804.00344), section 2.
    """

    packages = ("sentencepiece",)

    def __init__(self, source_model, target_model, vocabulary, target_vocabulary=None):
        super().__init__()
        both = {"vocabulary": vocabulary, "target_vocabulary": target_vocabulary}
        for name, ids in both.items():
            lacks = [] if ids is None else [x for x in _SPECIAL_TOKENS if x not in ids]
            wanted = f"a dict that holds {', '.join(_SPECIAL_TOKENS)}"
            check_that(not lacks, wanted, **{name: f"no {lacks}"})
        for token in () if target_vocabulary is None else _SPECIAL_TOKENS:
            source_id, target_id = vocabulary[token], target_vocabulary[token]
            wanted = f'a dict with the id {source_id} of "{token}", as in `vocabulary`'
            check_that(source_id == target_id, wanted, target_vocabulary=f"the id {target_id}")
        # Not a dict: TensorFlow would wrap its content, and search it for variables.
        self._arguments = types.SimpleNamespace(
            source_model=source_model,
            target_model=target_model,
            vocabulary=dict(vocabulary),
            target_vocabulary=target_vocabulary and dict(target_vocabulary),
        )
        self._processor = processor(source_model)
        self.pad_id, self.unk_id, self.eos_id = (vocabulary[token] for token in _SPECIAL_TOKENS)
        self.bos_id = self.pad_id
        self.template = Template(end=(self.eos_id,))
        self.vocabulary_size = max((target_vocabulary or vocabulary).values()) + 1
        self._surfaces = self._texts()
        if tf is not None:
            ids = tf.lookup.KeyValueTensorInitializer(
                [*vocabulary], [*vocabulary.values()], tf.string, tf.int32
            )
            self._ids = tf.lookup.StaticHashTable(ids, default_value=self.unk_id)

    def for_sources(self):
        """Return the tokenizer that encodes and decodes source texts."""
        own = self._arguments
        if own.target_vocabulary is None:
            return self
        return Marian(own.source_model, own.source_model, own.vocabulary)

    def for_targets(self):
        """Return the tokenizer that encodes target texts."""
        own = self._arguments
        return Marian(own.target_model, own.target_model, own.target_vocabulary or own.vocabulary)

    def vocabulary(self):
        """Return the texts of the ids of targets, a list of V strings."""
        ids = self._arguments.target_vocabulary or self._arguments.vocabulary
        pieces = {i: piece for piece, i in ids.items()}
        return [pieces.get(i, "") for i in range(self.vocabulary_size)]

    def get_config(self):
        return vars(self._arguments).copy()

    def _split(self, text):
        text = valid(text)
        rest = tf.strings.regex_replace(text, _CODE, "", replace_global=False)
        length = tf.strings.length(text) - tf.strings.length(rest)
        code = tf.strings.substr(text, tf.zeros_like(length), length)[:, None]
        pieces = operation(self._arguments.source_model, tf.string).tokenize(rest)
        pieces = tf.concat([tf.ragged.boolean_mask(code, code != ""), pieces], axis=1)
        return pieces.with_flat_values(self._ids.lookup(pieces.flat_values))

    def _split_in_python(self, sentences):
        return [np.array([*map(self._id_of, self._pieces(text))], "int32") for text in sentences]

    def _pieces(self, text):
        text = valid(text)
        codes = re.findall(_CODE, text)
        return codes + self._processor.encode(text[len("".join(codes)) :], out_type=str)

    def _id_of(self, piece):
        return self._arguments.vocabulary.get(piece, self.unk_id)

    def _texts(self):
        """Return the text of each id as bytes."""
        texts = {"<pad>": "", "</s>": "", "<unk>": REPLACEMENT}
        pieces = [texts.get(piece, piece.replace("▁", " ")) for piece in self.vocabulary()]
        return np.array([piece.encode() for piece in pieces], object)

    def _join(self, pieces):
        surfaces = tf.gather(tf.constant(self._surfaces), pieces)
        return tf.strings.strip(tf.strings.reduce_join(surfaces, axis=1))

    def _join_in_python(self, ids):
        return b"".join(self._surfaces[ids]).strip().decode()
