"""Behaviour of all tokenizers, in Python, in a graph, and from a saved file."""

import copy
import json
import pickle

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from fork_server import run_python
from hypothesis import strategies as st

from keras_attn import text
from keras_attn.text import Characters, SentencePiece, Template
from keras_attn.text.tokenizers.operations import pad

SENTENCES = [
    "two young , white males are outside near many bushes .",
    "zwei junge weiße männer sind im freien in der nähe vieler büsche .",
    "η γάτα κάθεται στο χαλί",
    "猫はマットの上に座っています",
    "a 😀 is one character",
    "&apos; is an apostrophe ; it isn &apos;t lost",
]
PAD, UNK, BOS, EOS = 0, 1, 2, 3
TOKENIZERS = {
    "unigram": lambda: SentencePiece.train(SENTENCES, 200),
    "characters": lambda: Characters.train(SENTENCES),
}


# The kinds of SentencePiece differ in their model only, which its own tests compare.
@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request):
    return TOKENIZERS[request.param]()


def decoded(tokenizer, ids):
    return [line.decode() for line in tokenizer.decode(ids).numpy()]


def test_marks_have_the_pinned_ids_and_the_size_is_printed(tokenizer):
    marks = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id)
    assert marks == (PAD, UNK, BOS, EOS)
    kind = type(tokenizer).__name__
    assert repr(tokenizer) == f"<{kind}, vocabulary_size={tokenizer.vocabulary_size}>"


def test_rows_end_with_eos_and_are_padded_with_zeros(tokenizer):
    """An empty text is EOS alone, and lists are the rows without marks."""
    sentences = [*SENTENCES, ""]
    ids, lengths = tokenizer.encode(sentences)
    assert decoded(tokenizer, ids) == sentences
    assert ids.dtype == lengths.dtype == tf.int32
    ids, lengths = ids.numpy(), lengths.numpy()
    assert ids.shape == (len(sentences), lengths.max()) and lengths[-1] == 1
    lists = tokenizer.encode_as_lists(sentences)
    for row, length, plain in zip(ids, lengths, lists, strict=True):
        assert row[: length - 1].tolist() == plain.tolist() and plain.dtype == np.int32
        assert row[length - 1] == EOS and not row[length:].any()
        assert ((plain > EOS) & (plain < tokenizer.vocabulary_size)).all()
    assert tokenizer.encode_as_lists([]) == []


def test_prompts_have_no_end_and_keep_one_token_more(tokenizer):
    """Also in NumPy, with a template that has a token before the text."""
    sentences = [*SENTENCES, ""]
    plain = [row.tolist() for row in tokenizer.encode_as_lists(sentences)]
    for max_length in (None, 5):
        ids, lengths = (x.numpy() for x in tokenizer.encode(sentences, max_length, end=False))
        expected = [row[:max_length] for row in plain]
        assert lengths.tolist() == [len(row) for row in expected]
        assert [row[:n].tolist() for row, n in zip(ids, lengths)] == expected
        assert ids.shape[1] == max(lengths) and not ids[-1].any()
        begun = Template(start=(BOS,), end=(EOS, UNK))
        rows = begun.around(tokenizer.encode_as_lists(sentences), max_length, end=False)
        assert [row.tolist() for row in rows] == [[BOS, *row][:max_length] for row in plain]
    assert tokenizer.encode([""], end=False)[0].shape == (1, 0)


def test_decoding_stops_at_the_first_eos_and_drops_marks(tokenizer):
    row = tokenizer.encode(SENTENCES[:1])[0].numpy()[0].tolist()
    noisy = [BOS, PAD, *row[:3], PAD, *row[3:], *row, PAD]
    assert decoded(tokenizer, [noisy]) == SENTENCES[:1]
    assert decoded(tokenizer, tf.constant([noisy], tf.int64)) == SENTENCES[:1]
    assert decoded(tokenizer, [[EOS, 5], [PAD, PAD], [BOS, EOS]]) == ["", "", ""]
    assert decoded(tokenizer, np.zeros([2, 0], "int32")) == ["", ""]


def test_characters_outside_the_vocabulary_are_unknown(tokenizer):
    ids, _ = tokenizer.encode([f"is {surprise} one" for surprise in "ж☃𝄞\0\u2028"])
    assert ((ids.numpy() == UNK).sum(axis=1) == 1).all()
    assert decoded(tokenizer, ids) == ["is \ufffd one"] * 5


def test_bytes_that_are_not_utf8_are_unknown(tokenizer):
    garbage = [b"\xff", b"\xc3", b"\xf0\x9f\x98", b"\xed\xa0\x80"]
    ids, _ = tokenizer.encode(tf.constant([b"is " + x + b" one" for x in [*garbage, b""]]))
    assert (ids.numpy() == UNK).any(axis=1).tolist() == [True] * 4 + [False]
    *lines, last = decoded(tokenizer, ids)
    assert {line.replace("\ufffd", "") for line in lines} == {"is  one"}
    assert last.split() == ["is", "one"]


def test_a_lone_surrogate_is_the_character_of_what_is_no_text(tokenizer):
    """JSON may hold one; a pair of them is a character."""
    broken, same, pair = json.loads(r'["two \ud83d bushes", "two \ufffd bushes", "\ud83d\ude00"]')
    for encode in (lambda x: tokenizer.encode(x)[0].numpy(), tokenizer.encode_as_lists):
        np.testing.assert_array_equal(encode([broken])[0], encode([same])[0])
    assert pair == "😀" and len(tokenizer.encode_as_lists([pair])[0]) <= 2
    ids, _, _ = tokenizer.encode_pair([broken], [broken])
    np.testing.assert_array_equal(ids, tokenizer.encode_pair([same], [same])[0])
    assert type(tokenizer).train([broken, "young"], vocabulary_size=20)


def test_the_names_of_marks_in_a_text_are_text(tokenizer):
    ids = tokenizer.encode(["</s> <s> <pad> <unk>"])[0].numpy()[0]
    assert not {PAD, BOS, EOS} & set(ids[:-1].tolist())


def test_ids_outside_the_vocabulary_decode_as_unknown(tokenizer):
    lines = decoded(tokenizer, [[-1, EOS], [10_000, EOS]])
    assert [line.strip() for line in lines] == ["\ufffd"] * 2


def test_max_length_keeps_eos(tokenizer):
    sentences = [*SENTENCES, "a", ""]
    whole = tokenizer.encode_as_lists(sentences)
    for max_length in (1, 2, 5):
        ids, lengths = tokenizer.encode(sentences, max_length=max_length)
        for full, row, length in zip(whole, ids.numpy(), lengths.numpy(), strict=True):
            assert row[:length].tolist() == [*full[: max_length - 1], EOS]
            assert not row[length:].any()
        assert ids.shape[1] == max_length


@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda t: t.encode(["a"], max_length=0), "Received: max_length=0"),
        (lambda t: t.encode("a"), "`text` must be a list of strings. Received: text='a'"),
        (lambda t: t.encode(tf.fill((2, 3), "a")), r"`text` must be strings of.*shape=\(2, 3\)"),
        (lambda t: t.encode(None), "`text` must be a list of strings. Received: text=None."),
        (lambda t: t.encode([1, 2]), r"Received: text=\[1, 2\]."),
        (lambda t: t.encode_pair(["a", "b"], ["a"]), "the same number of strings. Received: 2 an"),
        (lambda t: t.encode_as_lists("ab"), "Received: sentences='ab'."),
        (lambda t: t.decode("ab"), r"`ids` must be integers of shape \(batch, length\)."),
        (lambda t: t.decode([4, 5]), r"Received: shape=\(2,\), dtype=int32."),
        (lambda t: t.decode([[4.5]]), r"Received: shape=\(1, 1\), dtype=float32."),
        (lambda t: t.decode_as_strings([4, 5]), "`ids` must be rows of integers."),
        (lambda t: t.save(3), "`path` must be a path, a string. Received: path=3."),
        (lambda t: t.load(None), "`path` must be a path, a string. Received: path=None."),
        (lambda t: t.train(["ab"], "20"), "`vocabulary_size` must be an integer of at least"),
        (lambda t: t.train("ab", 20), "`sentences` must be an iterable of strings"),
    ],
)
def test_what_is_no_batch_is_refused(tokenizer, call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call(tokenizer)


PIECES = st.one_of(
    st.sampled_from([*SENTENCES, " ", "  ", "☃", "\n", "\0", "</s>", "\ufffd"]),
    st.text(st.characters(codec="utf-8")),
    st.binary(max_size=6),
)


@pytest.mark.slow
@hypothesis.given(st.lists(st.lists(PIECES, max_size=4), max_size=4), st.sampled_from([None, 1, 3]))
@hypothesis.settings(max_examples=6, deadline=None)
def test_python_gives_the_ids_and_texts_of_the_graph_operations(tokenizer, texts, max_length):
    """`encode` computes so on other backends than TensorFlow."""
    texts = [
        b"".join(piece if isinstance(piece, bytes) else piece.encode() for piece in pieces)
        for pieces in texts
    ]
    expected, lengths = tokenizer.encode(tf.constant(texts, tf.string, [len(texts)]), max_length)
    rows = tokenizer.template.around(tokenizer._split_in_python(texts), max_length)
    ids, sizes = pad(rows, tokenizer.pad_id)
    assert ids.tolist() == expected.numpy().tolist() and sizes.tolist() == lengths.numpy().tolist()
    assert ids.dtype == sizes.dtype == np.int32
    assert tokenizer.decode_as_strings(ids) == decoded(tokenizer, expected)
    assert tokenizer.decode_as_strings([*ids, []]) == [*decoded(tokenizer, expected), ""]
    strange = np.random.default_rng(len(texts)).integers(-3, tokenizer.vocabulary_size + 3, (5, 9))
    assert tokenizer.decode_as_strings(strange) == decoded(tokenizer, strange)


def test_save_and_load(tokenizer, tmp_path):
    path = tmp_path / "tokenizer"
    path.write_bytes(b"of an earlier run")
    tokenizer.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer"]
    for loaded in (text.load(path), type(tokenizer).load(str(path))):
        assert type(loaded) is type(tokenizer)
        assert loaded.vocabulary_size == tokenizer.vocabulary_size
        assert loaded.to_bytes() == tokenizer.to_bytes()
        ids = loaded.encode(SENTENCES)[0]
        assert (ids.numpy() == tokenizer.encode(SENTENCES)[0].numpy()).all()


def test_a_pickle_and_a_copy_are_the_tokenizer(tokenizer):
    """Also with a template of its own, which a file of characters does not hold."""
    original = copy.copy(tokenizer)
    original.template = Template(start=(BOS,), end=(EOS,))
    for again in (pickle.loads(pickle.dumps(original)), copy.deepcopy(original)):
        assert type(again) is type(tokenizer) and again.vocabulary() == tokenizer.vocabulary()
        ids = again.encode(SENTENCES)[0]
        np.testing.assert_array_equal(ids, original.encode(SENTENCES)[0])
        assert set(ids.numpy()[:, 0]) == {BOS} != set(tokenizer.encode(SENTENCES)[0].numpy()[:, 0])


@pytest.mark.slow
def test_one_string_of_a_dataset_is_one_row(tokenizer):
    """As `map` has it before `batch`."""
    dataset = tf.data.Dataset.from_tensor_slices(SENTENCES)
    expected, lengths = tokenizer.encode(SENTENCES, 7)
    rows = dataset.map(lambda text: tokenizer.encode(text, 7))
    assert rows.element_spec[0].shape.rank == 1 and rows.element_spec[1].shape.rank == 0
    for (ids, length), row, wanted in zip(rows, expected, lengths, strict=True):
        assert ids.numpy().tolist() == row[:wanted].numpy().tolist() and length == wanted
    pair = tokenizer.encode_pair(*map(tf.constant, SENTENCES[:2]), 9)
    for x, row in zip(pair, tokenizer.encode_pair(SENTENCES[:1], SENTENCES[1:2], 9), strict=True):
        np.testing.assert_array_equal(x, row[0])


def test_a_save_that_fails_leaves_the_earlier_file(tokenizer, tmp_path, monkeypatch):
    path = tmp_path / "tokenizer"
    path.write_bytes(b"of an earlier run")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        tokenizer.save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer"]
    assert path.read_bytes() == b"of an earlier run"


def test_loading_another_or_a_damaged_file_raises(tmp_path):
    path = tmp_path / "tokenizer"
    for content in (None, b"", b"{}", b"{junk", b"junk", b"[1]"):
        if content is not None:
            path.write_bytes(content)
        for load in (text.load, SentencePiece.load, Characters.load):
            with pytest.raises(ValueError, match="Received: path='.*tokenizer'"):
                load(path)
    for rest in ("", ', "config": {"x": 1}'):
        path.write_text('{"class_name": "WordPiece"%s}' % rest)
        with pytest.raises(ValueError, match="The file of a WordPiece is damaged"):
            text.WordPiece.load(path)


@pytest.mark.slow
def test_names_are_imported_on_first_use():
    code = (
        "import sys; from keras_attn import text; assert dir(text) == text.__all__; "
        "heavy = {'tensorflow_text', 'sentencepiece'}; assert not heavy & set(sys.modules); "
        "text.TokenBatches; assert not heavy & set(sys.modules); "
        "text.SentencePiece; assert not heavy & set(sys.modules); "
        "text.SentencePiece.train(['ab ab'], 10); assert heavy <= set(sys.modules)"
    )
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    with pytest.raises(AttributeError, match="Nonsense"):
        text.Nonsense  # noqa: B018


def test_tokens_joined_are_the_text(tokenizer):
    """But for the space in front of the first word that SentencePiece counts to it."""
    sentences = [*SENTENCES, "", "\U0001f680"]
    ids, lengths = (x.numpy() for x in tokenizer.encode(sentences))
    tokens = tokenizer.tokens(ids).numpy()
    assert tokens.shape == ids.shape
    for row, length, sentence in zip(tokens, lengths, decoded(tokenizer, ids), strict=True):
        assert b"".join(row).decode().removeprefix(" ") == sentence
        assert all(row[: length - 1]) and not any(row[length - 1 :])
    marks = tokenizer.tokens([PAD, BOS, EOS, UNK, -1, tokenizer.vocabulary_size]).numpy()
    assert [mark.decode() for mark in marks] == ["", "", "", "\ufffd", "\ufffd", "\ufffd"]
