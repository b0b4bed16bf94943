"""Training a SentencePiece vocabulary, against the sentencepiece package itself."""

import io
import sys

import pytest
import sentencepiece
from fork_server import run_python

from keras_attn.text import SentencePiece, Template

SENTENCES = [
    "the cat sat on the mat",
    "the dog sat on the log",
    "cats and dogs run and run",
    "die katze saß auf der matte",
    "der hund saß auf dem baumstamm",
]


def decoded(tokenizer, ids):
    return [line.decode() for line in tokenizer.decode(ids).numpy()]


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_pieces_are_those_of_the_package(model_type):
    tokenizer = SentencePiece.train(SENTENCES, 60, model_type)
    package = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.to_bytes())
    unseen = SENTENCES + ["the hund ran", "dogs sat", "x", ""]
    assert tokenizer.vocabulary_size == package.get_piece_size() <= 60
    assert [row.tolist() for row in tokenizer.encode_as_lists(unseen)] == package.encode(unseen)


@pytest.mark.slow
def test_training_is_deterministic():
    code = (
        "from keras_attn.text import SentencePiece\n"
        "for model_type in ('unigram', 'bpe'): "
        f"print(SentencePiece.train({SENTENCES!r}, 60, model_type).to_bytes().hex())"
    )
    other = run_python("-c", code).stdout.split()
    tokenizers = (SentencePiece.train(SENTENCES, 60, kind) for kind in ("unigram", "bpe"))
    assert [tokenizer.to_bytes().hex() for tokenizer in tokenizers] == other


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_a_small_text_yields_fewer_pieces_than_allowed(model_type):
    """Runs of spaces become one."""
    tokenizer = SentencePiece.train(SENTENCES, 8000, model_type)
    assert 4 < tokenizer.vocabulary_size < 200
    texts = decoded(tokenizer, tokenizer.encode([*SENTENCES, "  the   cat "])[0])
    assert texts == [*SENTENCES, "the cat"]


def test_every_character_gets_a_piece_unless_coverage_is_lowered():
    sentences = ["ab" * 50] * 50 + ["漢"]
    full = SentencePiece.train(sentences, 30)
    partial = SentencePiece.train(sentences, 30, character_coverage=0.999)
    assert decoded(full, full.encode(["a漢b"])[0]) == ["a漢b"]
    assert decoded(partial, partial.encode(["a漢b"])[0]) == ["a\ufffdb"]


def test_long_sentences_and_line_ends_are_learned_from():
    sentences = ["x" * 5_000, "é\nü"]
    tokenizer = SentencePiece.train(sentences, 30)
    assert decoded(tokenizer, tokenizer.encode(["x é ü"])[0]) == ["x é ü"]


def test_normalisation_is_off_unless_asked_for():
    sentences = ["ﬁne １２ ﬂat", "fine 12 flat"]
    identity = SentencePiece.train(sentences, 60)
    folded = SentencePiece.train(sentences, 60, normalization="nmt_nfkc")
    assert decoded(identity, identity.encode(["ﬁne １２"])[0]) == ["ﬁne １２"]
    assert decoded(folded, folded.encode(["ﬁne １２"])[0]) == ["fine 12"]
    with pytest.raises(ValueError, match="normalization='nonsense'"):
        SentencePiece.train(sentences, 60, normalization="nonsense")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((SENTENCES, 60, "word"), "Received: model_type='word'"),
        ((SENTENCES, 6), "must be at least [0-9]+.* Received: vocabulary_size=6"),
        (([], 60), "`sentences` holds no text"),
        ((["", "  ", "\n"], 60), "`sentences` holds no text"),
    ],
)
def test_bad_arguments_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        SentencePiece.train(*arguments)


def test_the_smallest_vocabulary_named_by_the_error_suffices():
    with pytest.raises(ValueError) as error:
        SentencePiece.train(SENTENCES, 6)
    needed = int(str(error.value).split("at least ")[1].split(",")[0])
    # Four marks, the letters, and the space.
    assert needed == 4 + len(set("".join(SENTENCES)))
    assert SentencePiece.train(SENTENCES, needed).vocabulary_size == needed
    with pytest.raises(ValueError, match=f"`vocabulary_size` must be at least {needed},"):
        SentencePiece.train(SENTENCES, needed - 1)


@pytest.mark.parametrize("model", [b"", b"junk", "text", None])
def test_bytes_that_are_no_model_are_refused(model):
    with pytest.raises(ValueError, match="not a SentencePiece model"):
        SentencePiece(model)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(ImportError, match=r"pip install 'keras_attn\[text\]'"):
        SentencePiece(b"model")


def library_model(**options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 3),
        model_writer=model,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


def test_a_model_of_t5_keeps_its_ids():
    proto = library_model(vocab_size=60, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    package = sentencepiece.SentencePieceProcessor(model_proto=proto)
    size = package.get_piece_size()
    tokenizer = SentencePiece(
        proto, special_tokens={"<extra_id_1>": size, "<extra_id_0>": size + 1}
    )
    marks = tokenizer.pad_id, tokenizer.eos_id, tokenizer.unk_id, tokenizer.bos_id
    assert marks == (0, 1, 2, 0)  # padding starts the targets
    ids, _ = tokenizer.encode(["the cat", "x 猫"])
    texts = [package.encode("the cat"), package.encode("x 猫")]
    assert ids.numpy().tolist() == padded([[*row, 1] for row in texts], 0)
    row = [[0, *texts[0], size + 1, 2, size + 2, size, 1, 5]]
    assert decoded(tokenizer, row) == tokenizer.decode_as_strings(row) == ["the cat\ufffd\ufffd"]
    assert tokenizer.vocabulary_size == size + 2
    assert tokenizer.vocabulary()[size:] == ["<extra_id_1>", "<extra_id_0>"]
    assert tokenizer.tokens([0, 1, 2, size]).numpy().tolist() == [b"", b"", b"\xef\xbf\xbd", b""]
    again = SentencePiece.from_bytes(tokenizer.to_bytes())
    assert again.get_config() == tokenizer.get_config()


def test_a_model_of_llama_spells_unknown_text_by_bytes():
    proto = library_model(vocab_size=330, model_type="bpe", byte_fallback=True)
    package = sentencepiece.SentencePieceProcessor(model_proto=proto)
    tokenizer = SentencePiece(proto, Template(start=(1,), middle=(1,)))
    marks = tokenizer.pad_id, tokenizer.eos_id, tokenizer.unk_id, tokenizer.bos_id
    assert marks == (None, 2, 0, 1)
    texts = ["the 猫 😀", "a", ""]
    ids, lengths = tokenizer.encode(texts)
    # Without padding of its own a row is filled with the end.
    assert ids.numpy().tolist() == padded([[1, *package.encode(text)] for text in texts], 2)
    assert lengths.numpy().tolist() == [1 + len(package.encode(text)) for text in texts]
    assert decoded(tokenizer, ids) == tokenizer.decode_as_strings(ids.numpy()) == texts
    assert b"".join(tokenizer.tokens(ids[0]).numpy()).decode() == " the 猫 😀"
    with_padding = SentencePiece(proto, Template((1,)), {"<pad>": 400}, pad_id=400)
    assert with_padding.encode(["a b", ""])[0].numpy()[1].tolist()[-1] == 400


def padded(rows, value):
    width = max(map(len, rows))
    return [row + [value] * (width - len(row)) for row in rows]
