"""Tokenizers with special tokens of their own: files, exports, and other backends."""

import json
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from other_backend import needs_jax, start_on
from tricky_lines import tricky_lines

from keras_attn import export, text
from keras_attn.text import ByteLevelBPE, Marian, SentencePiece, Template, WordPiece
from keras_attn.text.tokenizers.byte_level_bpe import LETTERS
from keras_attn.text.tokenizers.operations import pad

SENTENCES = ["the cat sat", "Zwei Männer's 猫 😀", "", "a  b\n"]
LINES = tricky_lines(390)[::3]
MODEL = SentencePiece.train([*SENTENCES, "the cat"] * 2, 60).to_bytes()
PIECES = [*"[PAD] [UNK] [CLS] [SEP]".split(), "the", "cat", "sat", "a", "b", "##s", "z", "##wei"]


def byte_level():
    vocabulary = {token: i for i, token in enumerate([*LETTERS, "ca", "cat", "Ġcat", "<|end|>"])}
    merges = ["c a", "ca t", "Ġ cat"]
    special = {"<s>": 260, "<|end|>": 259}
    options = {"eos_id": 259, "bos_id": 260, "ignore_merges": True, "normal_form": "NFC"}
    return ByteLevelBPE(vocabulary, merges, "llama3", special, template=Template((260,)), **options)


def marian():
    pieces = ["</s>", "<unk>", *SentencePiece(MODEL).vocabulary()[4:], ">>de<<", "<pad>"]
    return Marian(MODEL, MODEL, {piece: i for i, piece in enumerate(pieces)})


TOKENIZERS = {
    "wordpiece": lambda: WordPiece(PIECES, strip_accents=False),
    "byte_level": byte_level,
    "sentencepiece": lambda: SentencePiece(
        MODEL, Template((2,), (3,), (3,)), {"<x>": 99}, pad_id=98
    ),
    "marian": marian,
}
PLAIN = {
    "bpe": lambda: SentencePiece.train(SENTENCES, 90, "bpe"),
    "characters": lambda: text.Characters.train(SENTENCES),
}


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request):
    return TOKENIZERS[request.param]()


class Service(tf.Module):
    """A graph from text to ids and back, as an export makes it."""

    def __init__(self, tokenizer):
        super().__init__()
        self.tokenizer = tokenizer

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def __call__(self, text):
        ids, lengths = self.tokenizer.encode(text)
        return {"ids": ids, "lengths": lengths, "text": self.tokenizer.decode(ids)}


def test_files_give_the_tokenizer_back(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer")
    again = text.load(tmp_path / "tokenizer")
    assert type(again) is type(tokenizer)
    assert again.get_config() == tokenizer.get_config()
    assert again.vocabulary() == tokenizer.vocabulary()
    assert len(again.vocabulary()) == tokenizer.vocabulary_size
    for name in ("pad_id", "unk_id", "bos_id", "eos_id", "template"):
        assert getattr(again, name) == getattr(tokenizer, name)
    assert (again.encode(SENTENCES)[0].numpy() == tokenizer.encode(SENTENCES)[0].numpy()).all()
    with pytest.raises(ValueError, match="Received: path='.*tokenizer'"):
        text.Characters.load(tmp_path / "tokenizer")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TOKENIZERS, "characters"])
def test_an_export_gives_the_ids_of_python(name, tmp_path):
    tokenizer = {**TOKENIZERS, **PLAIN}[name]()
    tf.saved_model.save(Service(tokenizer), str(tmp_path))
    keras.utils.set_random_seed(1)  # it drops the kernels of eager mode
    loaded = tf.saved_model.load(str(tmp_path))
    # The SentencePiece library itself ends a text at NUL.
    lines = [line for line in LINES if b"\0" not in line]
    for batch in (lines, [b"", b"a"], lines[:1]):
        result = {name: x.numpy() for name, x in loaded(tf.constant(batch)).items()}
        in_python = tokenizer.template.around(tokenizer._split_in_python(batch))
        ids, lengths = pad(in_python, tokenizer.fill_id)
        assert result["ids"].tolist() == ids.tolist()
        assert result["lengths"].tolist() == lengths.tolist()
        texts = [line.decode() for line in result["text"]]
        assert texts == tokenizer.decode_as_strings(result["ids"])
    empty = loaded(tf.zeros([0], tf.string))
    assert empty["ids"].shape[0] == empty["text"].shape[0] == 0


def test_tokens_joined_are_the_text(tokenizer):
    ids, _ = tokenizer.encode(SENTENCES)
    tokens = tokenizer.tokens(ids).numpy()
    for row, sentence in zip(tokens, tokenizer.decode(ids).numpy(), strict=True):
        assert b"".join(row).strip() == sentence.strip()
    outside = tokenizer.tokens([-1, tokenizer.vocabulary_size]).numpy()
    assert [token.decode().strip() for token in outside] == ["\ufffd", "\ufffd"]


ON_ANOTHER_BACKEND = """
import json, sys
from keras_attn import text

for path in json.loads(sys.argv[1]):
    tokenizer = text.load(path)
    tokenizer = type(tokenizer).from_bytes(tokenizer.to_bytes())
    sentences = json.loads(sys.argv[2])
    ids, lengths = tokenizer.encode(sentences)
    pairs, _, segments = tokenizer.encode_pair(sentences, sentences[::-1], 9)
    texts = [line.decode() for line in tokenizer.decode(ids)]
    tokens = [[token.hex() for token in row] for row in tokenizer.tokens(ids)]
    print(json.dumps([x.tolist() for x in (ids, lengths, pairs, segments)] + [texts, tokens]))
assert sys.modules.get("tensorflow") is None
"""


@pytest.mark.slow
@needs_jax
def test_tokenizers_work_without_tensorflow(tmp_path):
    paths = []
    for name, make in {**TOKENIZERS, **PLAIN}.items():
        paths.append(str(tmp_path / name))
        make().save(paths[-1])
    done = start_on("jax", ON_ANOTHER_BACKEND, json.dumps(paths), json.dumps(SENTENCES))
    assert done.returncode == 0, done.stderr
    for path, line in zip(paths, done.stdout.splitlines(), strict=True):
        tokenizer = text.load(path)
        ids, lengths = tokenizer.encode(SENTENCES)
        pairs, _, segments = tokenizer.encode_pair(SENTENCES, SENTENCES[::-1], 9)
        expected = [x.numpy().tolist() for x in (ids, lengths, pairs, segments)]
        texts = [line.decode() for line in tokenizer.decode(ids).numpy()]
        rows = tokenizer.tokens(ids).numpy()
        tokens = [[token.hex() for token in row] for row in rows]
        assert json.loads(line) == [*expected, texts, tokens]


def test_a_prompt_loses_its_end_tokens_alone():
    """Those of GPT-2 and LLaMA have none, and lose no word."""
    for name, kept in (("byte_level", 3), ("sentencepiece", 1 + len(pieces_of("cats")))):
        generator = types.SimpleNamespace(tokenizer=TOKENIZERS[name]())
        _, lengths = export.TextGenerator._encode(generator, tf.constant(["cats"]))
        assert lengths.numpy().tolist() == [kept]


def pieces_of(sentence):
    return SentencePiece(MODEL).encode_as_lists([sentence])[0]


@pytest.mark.slow
def test_padding_is_the_end_where_a_model_has_none():
    tokenizer = byte_level()
    ids, lengths = tokenizer.encode(["a", "cats"])
    assert ids.numpy().tolist() == [[260, 97, 259], [260, 257, 115]]
    assert lengths.numpy().tolist() == [2, 3]
    assert np.array(tokenizer.decode(ids)).tolist() == [b"a", b"cats"]
