"""recipes.prepare: every way of preparing a corpus writes the same files, whatever stops it."""

import collections
import gzip
import hashlib
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from fork_server import ROOT

from keras_attn import text
from recipes.prepare import steps
from recipes.prepare.__main__ import main
from recipes.prepare.cleaning import clean, clean_sides

WORDS = "a corpus of some documents each with words enough for a split and an é".split()


def document(number):
    generator = np.random.default_rng(number)
    lines = [" ".join(generator.choice(WORDS, 7)) for _ in range(3)]
    return "\n".join([f"document {number}", *lines])


DOCUMENTS = [document(number) for number in range(53)]


def write_corpus(folder):
    """Write the documents to files of several formats, some twice; return them in that order."""
    (folder / "more").mkdir(parents=True)
    repeats = [*DOCUMENTS[:31], *DOCUMENTS[11:19]]
    objects = [json.dumps({"id": i, "text": f"{d} \r\n"}) for i, d in enumerate(repeats)]
    (folder / "a.jsonl").write_text("\n".join(objects) + "\n", newline="")
    with gzip.open(folder / "b.jsonl.gz", "wt") as file:
        file.write("\n".join(json.dumps({"text": d}, ensure_ascii=False) for d in DOCUMENTS[29:41]))
    for number in range(41, 53):
        (folder / "more" / f"{number}.txt").write_text(DOCUMENTS[number])
    with gzip.open(folder / "more" / "again.gz", "wt") as file:
        file.write(DOCUMENTS[43])
    (folder / "README.md").write_text("not a text of the corpus")
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus") / "texts")


def arguments(corpus, out, *more):
    how = "--tokenizer characters --valid 0.2 --test 0.2 --part 0.003 --processes 1"
    return ["--data-dir", str(corpus), "--out", str(out), *how.split(), *map(str, more)]


def content(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def prepared(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("prepared") / "out"
    assert main(arguments(corpus, out)) == 0
    return out


def test_each_document_is_once_in_the_split_of_its_hash(prepared):
    """Nothing but the corpus is left."""
    tokenizer = text.load(prepared / "tokenizer.model")
    expected = collections.defaultdict(set)
    for one in DOCUMENTS:
        place = int(hashlib.sha256(one.encode()).hexdigest()[:16], 16) / 2**64
        split = "valid" if place < 0.2 else "test" if place < 0.4 else "train"
        expected[split].add(one)
    for split in ("train", "valid", "test"):
        documents = text.TokenFiles(prepared, split).documents
        rows = [documents[i] for i in range(len(documents))]
        assert all(row[-1] == tokenizer.eos_id for row in rows)
        texts = tokenizer.decode_as_strings(rows)
        assert sorted(texts) == sorted(expected[split])
        characters = text.Manifest.read(prepared).total(split, "characters")
        assert characters == sum(len(one) + 1 for one in texts)
    report = json.loads((prepared / "report.json").read_text())
    assert (report["documents"], report["repeats"]) == (64, 11)
    assert (report["files"], report["problems"]) == (15, {})
    others = {path.name for path in prepared.iterdir() if not path.name.startswith("part-")}
    assert others == {"manifest.json", "report.json", "tokenizer.model"}
    shards = {path.stem for path in prepared.glob("part-*")}
    assert len([*prepared.glob("part-*")]) == 3 * len(shards) > 20


class Stop(KeyboardInterrupt):
    """A signal that comes while a file is written."""


def stop_at(monkeypatch, number, is_before):
    """Stop the process at the write of a file with this number."""
    replace, calls = os.replace, iter(range(10**6))

    def stopping(*paths):
        is_last = next(calls) == number
        if is_last and is_before:
            raise Stop
        replace(*paths)
        if is_last:
            raise Stop

    monkeypatch.setattr(os, "replace", stopping)


def resumes_after(number, corpus, prepared, out, monkeypatch):
    """Stop a preparation at the write of a file and resume it; return False if it had ended."""
    with monkeypatch.context() as patch:
        stop_at(patch, number, is_before=number % 2)
        stopped = main(arguments(corpus, out)) == 130
    assert main(arguments(corpus, out)) == 0
    assert content(out) == content(prepared)
    return stopped


def test_a_stopped_run_resumes_to_the_same_bytes(corpus, prepared, tmp_path, monkeypatch):
    assert resumes_after(20, corpus, prepared, tmp_path, monkeypatch)


@pytest.mark.slow
def test_a_run_may_be_stopped_at_any_write(corpus, prepared, tmp_path, monkeypatch):
    number = 0
    while resumes_after(number, corpus, prepared, tmp_path / str(number), monkeypatch):
        number += 7  # before and after a write in turn
    assert number > 40


def test_a_shard_that_was_altered_before_the_end_is_made_again(
    corpus, prepared, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(steps, "finish", lambda plan: (_ for _ in ()).throw(KeyboardInterrupt))
        assert main(arguments(corpus, tmp_path)) == 130
    path = next(tmp_path.glob("part-*-train.bin"))
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(1, 1))
    assert main(arguments(corpus, tmp_path)) == 0
    assert content(tmp_path) == content(prepared)


def test_a_finished_corpus_is_not_written_again(corpus, prepared, capsys):
    before = {path: path.stat().st_mtime_ns for path in prepared.iterdir()}
    assert main(arguments(corpus, prepared)) == 0
    assert {path: path.stat().st_mtime_ns for path in prepared.iterdir()} == before
    assert "64 in 15 files, of which 11 are repeats" in capsys.readouterr().out


def other_file(corpus, out):
    (out / "notes.txt").write_text("mine")


def other_options(corpus, out):
    assert main(arguments(corpus, out, "--field", "other", "--strict")) == 2
    assert (out / "work").exists()


def prepared_corpus(corpus, out):
    folder = out.parent / "prepared"
    folder.mkdir()
    (folder / "manifest.json").write_text("{}")


def not_utf8(corpus, out):
    (out.parent / "bad.txt").write_bytes(b"some \xff words\n")


REFUSED = {
    "There is no such folder or file. Received: --data-dir": (["--data-dir", "{tmp}/none"], None),
    "A corpus has files .txt, .jsonl, .gz or .zst. Received: --data-dir {tmp}, which has no": (
        ["--data-dir", "{tmp}"],
        None,
    ),
    "No line of a.jsonl has a text in the field 'body'. Received: --field body; the first object "
    "has id, text.": (["--field", "body"], None),
    "The folder {out} holds no preparation, but notes.txt; give another --out.": ([], other_file),
    "with other options; give another --out. Received: field='other', now 'text', strict": (
        [],
        other_options,
    ),
    "A prepared corpus is no text; language-model": (
        ["--data-dir", "{out}/../prepared"],
        prepared_corpus,
    ),
    "has no document that can be used. Left out: documents that are not UTF-8 (1, first bad.txt": (
        ["--data-dir", "{out}/../bad.txt"],
        not_utf8,
    ),
    "No document falls to the split valid; divide the texts into more": (
        ["--valid", "1e-9"],
        None,
    ),
    "does not exist": (["--tokenizer-file", "{tmp}/none"], None),
}


@pytest.mark.parametrize("message", REFUSED)
def test_wrong_input_is_one_sentence_and_nothing_is_overwritten(message, corpus, tmp_path, capsys):
    more, before = REFUSED[message]
    out = tmp_path / "out"
    out.mkdir()
    if before:
        before(corpus, out)
        capsys.readouterr()
    there = content(out)
    names = {"tmp": tmp_path / "empty", "out": out}
    names["tmp"].mkdir()
    assert main(arguments(corpus, out, *(one.format(**names) for one in more))) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and message.format(**names) in said
    assert there.items() <= content(out).items()


def test_a_corpus_of_other_options_or_files_is_refused_without_hashes(
    corpus, prepared, tmp_path, capsys
):
    before = content(prepared)
    (tmp_path / "a.txt").write_text("another corpus")
    tokenizer = tmp_path / "tokenizer"
    tokenizer.write_bytes((prepared / "tokenizer.model").read_bytes())
    for options, message in (
        (["--valid", "0.3"], "give another --out. Received: valid=0.2, now 0.3."),
        (["--data-dir", f"{tmp_path}"], "made of files with other names or sizes; give another"),
        (
            ["--tokenizer-file", f"{tokenizer}"],
            "Received: tokenizer='characters', now another file.",
        ),
    ):
        assert main(arguments(corpus, prepared, *options)) == 2
        said = capsys.readouterr().err
        assert message in said and not re.search("[0-9a-f]{64}", said)
    assert content(prepared) == before


def test_a_text_that_changes_between_the_passes_is_refused(tmp_path, monkeypatch, capsys):
    folder = write_corpus(tmp_path / "texts")
    choose = steps.choose_documents_and_tokenizer

    def change(*inputs):
        choose(*inputs)
        (folder / "more" / "41.txt").write_text(DOCUMENTS[41].replace("document", "monument"))

    monkeypatch.setattr(steps, "choose_documents_and_tokenizer", change)
    assert main(arguments(folder, tmp_path / "out")) == 2
    assert "A text changed while it was prepared" in capsys.readouterr().err


def test_a_wrong_option_is_refused_before_anything_is_read(capsys):
    for options, message in {
        "--runner FlinkRunner": "unrecognized arguments: --runner FlinkRunner",
        "--worker 2 --workers 2": "--worker must be below --workers 2",
        "--valid 0.6 --test 0.5": "must leave a share for training",
        "--out here/out --data-dir here": "--out must not be within --data-dir",
        "--engine beam --workers 2": "--engine beam and --workers exclude each other",
    }.items():
        with pytest.raises(SystemExit):
            main(["--data-dir", "none", *options.split()])
        assert message in capsys.readouterr().err


@pytest.mark.slow
def test_preparing_needs_no_keras(corpus, tmp_path):
    more = "--tokenizer", "bpe", "--vocabulary-size", "60"
    program = [sys.executable, "-X", "importtime", "-m", "recipes.prepare"]
    command = [*program, *arguments(corpus, tmp_path, *more)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "numpy" in imported
    assert not {"keras", "tensorflow", "jax"} & imported
    manifest = text.Manifest.read(tmp_path)
    assert manifest.load_tokenizer(tmp_path).tool == manifest.splits["train"][0].tool


def start(corpus, out, *more):
    command = [sys.executable, "-m", "recipes.prepare", *arguments(corpus, out, *more)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.mark.slow
def test_cores_and_workers_write_the_files_of_the_plain_loop(corpus, prepared, tmp_path):
    expected = content(prepared)
    runs = [start(corpus, tmp_path / "cores", "--processes", 2)]
    runs += [start(corpus, tmp_path / "n", "--worker", i, "--workers", 3) for i in range(3)]
    for run in runs:
        said, _ = run.communicate()
        assert run.returncode == 0, said
    assert content(tmp_path / "cores") == expected
    assert content(tmp_path / "n") == expected


def test_cleaned_text_stays_as_it_is():
    for one in DOCUMENTS:
        assert clean(one) == one and clean(f"\ufeff\n {one}\r\n\r\n\n \t\n") == f" {one}"


@pytest.mark.parametrize("mark", [*"\x0b\x0c\x1c\x1d\x1e\x1f\x85", "\r", "\0\x0c", "\u2028"])
def test_controls_between_two_words_divide_them(mark):
    """Python's own division into lines or words is the reference."""
    content = f"one{mark}two"
    assert len(content.split()) == 2 or "\0" in mark
    assert clean(content).split() == ["one", "two"]
    assert clean_sides((content, content.upper())) in (
        ("one two", "ONE TWO"),
        ("one\u2028two", "ONE\u2028TWO"),
    )
    assert clean(f"a{mark}\n\n\nb") == "a\n\nb" and clean("a\0b\x07") == "ab"
