"""recipes.prepare --source --target: the lines of two files are pairs."""

import gzip
import hashlib
import itertools
import json

import pytest

from recipes.common import files
from recipes.prepare import parallel_text, plan
from recipes.prepare.__main__ import main
from recipes.prepare.division import divide
from recipes.prepare.options import RecipeOptions
from recipes.prepare.parallel_text import PARALLEL_TEXT, find_pairs
from recipes.translate.prepared_pairs import PreparedPairs

# Lines of very different lengths: the same line is at other places of the two files.
PAIRS = [(f"eins {i}" * (1 + i % 7), f"one {i * i % 101}{i}" * (1 + i % 5)) for i in range(211)]


def prepare(data, out, *more, languages="--source de --target en"):
    how = "--tokenizer characters --valid 0.2 --test 0.1 --part 0.003"
    options = ["--data-dir", f"{data}", "--out", f"{out}", *languages.split(), *how.split(), *more]
    return main(options if "--processes" in more else [*options, "--processes", "1"])


def write(folder, name, pairs):
    for language, side in zip(("de", "en"), zip(*pairs, strict=True), strict=True):
        (folder / f"{name}.{language}").write_text("\n".join(side), newline="")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """One pair of large files, and a compressed one with repeats and lines that are left out."""
    folder = tmp_path_factory.mktemp("data")
    write(folder, "large", PAIRS[:150])
    (folder / "more").mkdir()
    bad = [("allein", " "), ("", ""), ("", "alone"), ("x", "\ufffe")]
    few = [*PAIRS[150:], *PAIRS[3:11], *bad]
    for language, side in zip(("de", "en"), zip(*few, strict=True), strict=True):
        content = "\r\n".join(side).encode().replace("\ufffe".encode(), b"\xff")
        path = folder / "more" / f"few.{language}"
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(content, mtime=0))
    (folder / "README.md").write_text("no text of the corpus")
    return folder


@pytest.fixture(scope="module")
def prepared(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("prepared") / "out"
    assert prepare(data, out) == 0
    return out


def content(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_lines_with_the_same_number_are_pairs(prepared):
    pairs = [
        pair for split in ("train", "valid", "test") for pair in PreparedPairs(prepared, split)
    ]
    assert sorted(pairs) == sorted(PAIRS)
    report = json.loads((prepared / "report.json").read_text())
    assert (report["files"], report["documents"], report["repeats"]) == (4, 219, 8)
    counts = {kind: (x["count"], x["first"]) for kind, x in report["problems"].items()}
    assert counts == {
        "pairs of which one side is empty": (
            2,
            ["more/few.en.gz, line 70", "more/few.de.gz, line 72"],
        ),
        "documents that are not UTF-8": (1, ["more/few.en.gz, line 73"]),
    }


def test_pairs_of_json_lines_give_the_same_files(tmp_path):
    """The shards depend on the pairs alone; of this corpus one part, so one shard of a split."""
    write(tmp_path, "a", PAIRS)
    lines = [json.dumps({"de": a, "en": b}) for a, b in PAIRS]
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "a.jsonl").write_text("\n".join(lines))
    whole = "--part", "9"
    assert prepare(tmp_path / "a.de", tmp_path / "one", *whole) == 0
    fields = "--field de --target-field en"
    assert prepare(tmp_path / "json", tmp_path / "two", *whole, languages=fields) == 0
    shards = [
        {name: x for name, x in content(tmp_path / out).items() if name.startswith("part-")}
        for out in ("one", "two")
    ]
    assert shards[0] == shards[1] and len(shards[0]) == 9


def test_all_translations_of_a_source_are_in_the_split_of_its_hash(tmp_path):
    pairs = [(f"eins {i}", f"{word} {i}") for i in range(40) for word in ("one", "another", "one")]
    write(tmp_path, "a", pairs)
    assert prepare(tmp_path / "a.de", tmp_path / "out") == 0
    places = {
        pair: int(hashlib.sha256(pair[0].encode()).hexdigest()[:16], 16) / 2**64 for pair in pairs
    }
    for split, least, most in (("valid", 0, 0.2), ("test", 0.2, 0.3), ("train", 0.3, 1)):
        expected = {pair for pair, place in places.items() if least <= place < most}
        assert sorted(PreparedPairs(tmp_path / "out", split)) == sorted(expected)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["repeats"] == 40


@pytest.mark.parametrize(
    "size, chunk", [(1, parallel_text.CHUNK), (40, 7), (300, parallel_text.CHUNK), (10**6, 7)]
)
def test_parts_begin_at_the_same_line_of_both_files(tmp_path, monkeypatch, size, chunk):
    monkeypatch.setattr(parallel_text, "CHUNK", chunk)
    write(tmp_path, "a", PAIRS)
    folder, paths = find_pairs(str(tmp_path), ("de", "en"))
    parts = divide(folder, paths, PARALLEL_TEXT, size)
    for number, path in enumerate(paths):
        sources = [source for part in parts for source in part[number::2]]
        whole = (tmp_path / path).read_bytes()
        assert b"".join(whole[source.start : source.stop] for source in sources) == whole
        for one, other in itertools.pairwise(sources):
            assert one.stop == other.start
    pairs = []
    for part in parts:
        sides = [(tmp_path / x.path).read_text()[x.start : x.stop].splitlines() for x in part]
        assert len(sides) == 2  # more only of small files
        pairs += zip(*sides, strict=True)
    assert pairs == PAIRS and (len(parts) > 20) == (size < 10**6)


def shorter(folder):
    write(folder, "a", PAIRS)
    (folder / "a.en").write_text("\n".join(b for _, b in PAIRS[:-3]))
    return "same number of lines. Received: a.de with 211 and a.en with 208"


def both_empty(folder):
    write(folder, "a", [("", "")])
    return "no document that can be used. Left out: empty files (2, first a.de)."


def alone(folder):
    (folder / "a.de").write_text("eins")
    return "Each text needs its translation. Received: a.de without a.en."


def twice(folder):
    write(folder, "a", PAIRS)
    (folder / "a.de.gz").write_bytes(gzip.compress(b"eins"))
    return "Two files are the same text. Received: a.de and a.de.gz."


def others(folder):
    (folder / "a.txt").write_text("eins")
    return "The corpus needs files .de and .en, which may also end in .gz or .zst. Received: --da"


def not_utf8(folder):
    (folder / "a.de").write_bytes(b"eins\n\xff")
    (folder / "a.en").write_bytes(b"\xff\none")
    return "be used. Left out: documents that are not UTF-8 (2, first a.en, line 1)."


@pytest.mark.parametrize("make", [shorter, both_empty, alone, twice, others, not_utf8])
def test_wrong_files_are_one_sentence(make, tmp_path, capsys):
    folder, out = tmp_path / "data", tmp_path / "out"
    folder.mkdir()
    message = make(folder)
    assert prepare(folder, out) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and message in said
    assert not [*out.glob("manifest.json")]


def test_other_languages_and_an_unfinished_corpus_are_named(data, tmp_path, capsys):
    options = [
        "--data-dir",
        f"{data}",
        "--out",
        f"{tmp_path / 'out'}",
        "--source=de",
        "--target=en",
    ]
    plan.read_parts(plan.make_plan(RecipeOptions.parse(options)))
    with pytest.raises(ValueError, match="is not finished; the same command of keras-attn prepare"):
        files.find(tmp_path / "out", "train.de")
    assert main([*options[:4], "--source=en", "--target=de"]) == 2
    received = "Received: source='de', now 'en', target='en', now 'de'."
    assert f"with other options; give another --out. {received}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "languages, message",
    [
        ("--source de", "belong together. Received: --source 'de'."),
        ("--source= --target en", "belong together. Received: --source '' --target 'en'."),
        ("--source de --target en --documents lines", "--source and --documents exclude"),
        ("--source de --target en --field x", "--source and --field exclude"),
        ("--source de --target de", "are two languages"),
        ("--source de --target en --target-field x", "--source and --target-field exclude"),
    ],
)
def test_options_that_do_not_fit_are_refused(languages, message, tmp_path, capsys):
    with pytest.raises(SystemExit):
        prepare(tmp_path, tmp_path / "out", languages=languages)
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_two_processes_write_the_files_of_the_plain_loop(data, prepared, tmp_path):
    assert prepare(data, tmp_path / "out", "--processes", "2") == 0
    assert content(tmp_path / "out") == content(prepared)
