"""Documents of a corpus: what they are in each format, and what is left out of them."""

import gzip
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attn import text
from recipes.prepare import documents as module
from recipes.prepare import encoding
from recipes.prepare.division import divide
from recipes.prepare.documents import Documents
from recipes.prepare.options import KINDS
from recipes.prepare.problems import Problems
from recipes.prepare.repeats import kept
from recipes.prepare.sources import Source, find_files


def read(folder, paths=None, documents="file", field="text", problems=None, sources=None):
    """The documents of files, and the problems in them."""
    problems = Problems() if problems is None else problems
    sources = [Source(path) for path in paths] if sources is None else sources
    texts = [text for (text,) in Documents(str(folder), sources, documents, (field,), problems)]
    return texts, problems.counts


TEXT = "one\ntwo\n\n \t\nthree\n\n\nfour\nfive"


@pytest.mark.parametrize(
    "documents, expected",
    [
        ("file", [TEXT]),
        ("blank_lines", ["one\ntwo\n", "three\n", "four\nfive"]),
        ("lines", ["one\n", "two\n", "three\n", "four\n", "five"]),
    ],
)
def test_a_text_is_a_document_or_has_one_for_each_paragraph_or_line(tmp_path, documents, expected):
    (tmp_path / "a.txt").write_text(TEXT)
    with gzip.open(tmp_path / "b.gz", "wt") as file:
        file.write(TEXT)
    texts, problems = read(tmp_path, ["a.txt", "b.gz"], documents)
    assert (texts, problems) == (2 * expected, {})


def one(*places):
    return {"count": len(places), "first": [*places]}


def test_a_lone_surrogate_of_json_is_replaced(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(rb'{"text": "a\ud83d \ud83d\ude00"}')
    assert read(tmp_path, ["a.jsonl"]) == (["a\ufffd \U0001f600"], {})


def test_what_cannot_be_read_is_counted_and_named(tmp_path):
    lines = [b'{"text": "a"}', b"no JSON", b"[1]", b"", b'{"text": 3}', b'{"text": "\xff"}']
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([*lines, b'{"other": 1, "text": "b"}', b"{"]))
    (tmp_path / "b.txt").write_bytes(b"\xe9t\xe9")
    (tmp_path / "c.txt").write_bytes(b"")
    whole = gzip.compress(json.dumps({"text": "c"}).encode() + b"\n" + bytes(range(200)) * 50)
    (tmp_path / "d.jsonl.gz").write_bytes(whole[:-20])
    (tmp_path / "e.gz").write_bytes(b"no gzip")
    texts, problems = read(tmp_path, ["a.jsonl", "b.txt", "c.txt", "d.jsonl.gz", "e.gz"])
    assert texts[:3] == ["a", "b", "c"]
    broken = problems.pop("lines that are no JSON object")
    assert broken["first"][:3] == [f"a.jsonl, line {number}" for number in (2, 3, 8)]
    not_utf8 = problems.pop("documents that are not UTF-8")
    assert {"a.jsonl, line 6", "b.txt, line 1"} <= {*not_utf8["first"]}
    assert problems == {
        "lines without a text in the field": one("a.jsonl, line 5"),
        "empty files": one("c.txt"),
        "damaged files": one("d.jsonl.gz", "e.gz"),
    }


@pytest.mark.parametrize(
    "name, content, place",
    [
        ("a.jsonl", b'{"text": "a"}\n{', "a.jsonl, line 2"),
        ("a.txt", b"\xff", "a.txt, line 1"),
        ("a.txt", b"", "a.txt"),
        ("a.gz", gzip.compress(b"a", mtime=0)[:-1], "a.gz"),
    ],
)
def test_the_first_problem_is_fatal_if_asked(tmp_path, name, content, place):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"^{place}: --strict allows no "):
        read(tmp_path, [name], problems=Problems(is_fatal=True))


def test_long_texts_are_cut_without_loss(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LONGEST", 23)
    lines = ["some words of a line ", "é" * 41, "", "x " * 31, "end"]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    for documents in ("file", "lines"):
        texts, problems = read(tmp_path, ["a.txt"], documents)
        assert problems == {} and all(len(piece.encode()) <= 23 for piece in texts)
        whole = "\n".join(lines)
        assert "".join(texts) == (whole if documents == "file" else whole.replace("\n\n", "\n"))


def test_a_line_of_json_that_is_too_long_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LONGEST_LINE", 31)
    objects = [{"text": "a"}, {"text": "b" * 99}, {"text": "c"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, objects)))
    texts, problems = read(tmp_path, ["a.jsonl"])
    assert texts == ["a", "c"]
    assert problems == {"lines of more than 64 MiB": one("a.jsonl, line 2")}


@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.sampled_from(["", " ", "a", "bc de", "f" * 17]), max_size=30),
    st.integers(1, 40),
    st.sampled_from(["blank_lines", "lines"]),
)
def test_the_parts_of_a_large_file_hold_its_documents(tmp_path_factory, lines, size, documents):
    folder = tmp_path_factory.mktemp("parts")
    (folder / "a.txt").write_text("\n".join(lines))
    (folder / "b.jsonl").write_text("".join(f'{{"text": "{line}"}}\n' for line in lines))
    for path in ("a.txt", "b.jsonl"):
        parts = divide(str(folder), [path], documents, size)
        whole, _ = read(folder, [path], documents)
        texts = [
            document
            for part in parts
            for document in read(folder, None, documents, sources=part)[0]
        ]
        assert texts == whole


def test_small_files_share_a_part(tmp_path):
    for name, size in {"a": 3, "b": 4, "c": 4, "d": 20, "e": 1}.items():
        (tmp_path / f"{name}.txt").write_bytes(b"x" * size)
    _, paths = find_files(str(tmp_path))
    parts = divide(str(tmp_path), paths, "file", 8)
    names = [[source.path[0] for source in part] for part in parts]
    assert names == [["a", "b"], ["c"], ["d"], ["e"]]  # d is one document


@pytest.mark.parametrize("most", [3, 1000])
def test_the_first_of_equal_documents_is_kept(most):
    generator = np.random.default_rng(7)
    keys = generator.integers(0, 256, (11, 32), dtype="uint8")
    keys[1] = [*keys[0, :31], keys[0, 31] ^ 1]  # the last bit alone differs
    keys[2, 8:] = 0
    parts = [keys[generator.integers(0, 11, count)] for count in (5, 0, 31, 17)]
    seen, expected = set(), []
    for key in np.concatenate(parts):
        expected.append(key.tobytes() not in seen)
        seen.add(key.tobytes())
    is_kept = kept([len(part) for part in parts], lambda index: parts[index], most)
    assert is_kept.tolist() == expected


LINES = ["The first  line ", "", " a second one, of more words", "x" * 40, "éa ß\tend"]


@pytest.mark.parametrize("kind", KINDS)
def test_documents_are_encoded_as_the_tokenizer_of_the_library_does(tmp_path, kind):
    whole = "\n".join(LINES)
    content = encoding.train(kind, [whole] * 3, 60)
    (tmp_path / "tokenizer").write_bytes(content)
    tokenizer = text.load(tmp_path / "tokenizer")
    encode = encoding.Encoder(content, str(tmp_path / "tokenizer"))
    ids, characters = encode(whole)
    assert (encode.tool, encode.vocabulary_size) == (tokenizer.tool, tokenizer.vocabulary_size)
    if kind == "characters":
        assert text.Characters.train([whole] * 3, 60).to_bytes() == content
        rows, length = tokenizer.encode_as_lists([whole]), len(whole)
    else:
        sentences = LINES * 3
        assert text.SentencePiece.train(sentences, 60, kind).to_bytes() == content
        rows, length = tokenizer.encode_as_lists(LINES), len(whole) - 3  # spaces that vanish
    assert ids.tolist() == [i for row in rows for i in [*row, tokenizer.eos_id]]
    assert characters == length + 1


def test_other_tokenizers_of_the_library_encode_documents(tmp_path):
    tokenizer = text.WordPiece("[PAD] [UNK] [CLS] [SEP] the cat ##s".split())
    tokenizer.save(tmp_path / "tokenizer")
    content = (tmp_path / "tokenizer").read_bytes()
    encode = encoding.Encoder(content, str(tmp_path / "tokenizer"))
    assert encode("the cats\ncat")[0].tolist() == [4, 5, 6, 3, 5, 3]
    assert encode.tool == tokenizer.tool


def test_long_lines_are_encoded_in_pieces(monkeypatch):
    content = encoding.train("bpe", ["the cat sat on the mat"] * 3, 40)
    encode = encoding.Encoder(content, "tokenizer")
    line = "the cat sat on the mat " * 9
    expected = encode(line)
    monkeypatch.setattr(encoding, "LONGEST_LINE", 17)
    output = encode(line)
    assert output[0].tolist() == expected[0].tolist() and output[1] == expected[1]
