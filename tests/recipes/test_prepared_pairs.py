"""Pairs that recipes.prepare has made: those of the text, and the batches that text gives."""

import json
import shutil

import keras
import numpy as np
import pytest
from recipe_runs import error_of, parse

from keras_attn import text
from recipes.prepare.__main__ import main
from recipes.translate import architectures
from recipes.translate.parallel_text import ParallelCorpus
from recipes.translate.task import make_task, prepared_pairs
from recipes.translate.training import TranslationRun

SENTENCES = [f"eins {i} und {i * i % 101}" for i in range(211)]
PAIRS = [(one, one[::-1].upper()) for one in SENTENCES]


def prepare(data, out, *more):
    options = "--field de --target-field en --tokenizer characters --valid 0.2 --test 0.1"
    return main(["--data-dir", f"{data}", "--out", f"{out}", *options.split(), *more])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Pairs in two files, some twice, with broken lines among them."""
    folder = tmp_path_factory.mktemp("data")
    lines = [json.dumps({"de": f" {a}\r\n", "en": b, "id": i}) for i, (a, b) in enumerate(PAIRS)]
    broken = [json.dumps({"de": "eins"}), json.dumps({"de": "eins", "en": " \n"}), "{"]
    (folder / "a.jsonl").write_text("\n".join([*lines[:97], *broken, *lines[3:11]]))
    (folder / "b.jsonl").write_text("\n".join(lines[97:]))
    return folder


@pytest.fixture(scope="module")
def prepared(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("prepared") / "out"
    assert prepare(data, out, "--processes", "1", "--part", "0.003") == 0
    return out


def options_of(data_dir, out, *more):
    pair = "--source", "de", "--target", "en", "--tokenizer", "characters"
    return parse("translate", "--data-dir", str(data_dir), "--out", str(out), *pair, *more)


def test_prepared_pairs_give_the_batches_of_the_text(prepared, tmp_path):
    for split, pairs in make_task(options_of(prepared, "out")).splits.items():
        for language, side in zip(("de", "en"), zip(*pairs, strict=True), strict=True):
            (tmp_path / f"{split}.{language}").write_text("\n".join(side))
    batches = []
    for data_dir in (prepared, tmp_path):
        options = options_of(data_dir, tmp_path / "out")
        corpus = ParallelCorpus.load(make_task(options), options)
        batches.append(
            [text.TokenBatches(corpus.ids[x], tokens_per_batch=300) for x in ("train", "val")]
        )
    for one, other in zip(*batches, strict=True):
        assert len(one) == len(other) > 2
        for epoch, index in ((0, 0), (1, len(one) - 1), (2, len(one) // 2)):
            outputs = one.batch(epoch, index), other.batch(epoch, index)
            keras.tree.map_structure(np.testing.assert_array_equal, *outputs)


def test_pairs_are_trained_in_the_direction_that_is_asked_for(prepared, tmp_path):
    """The batches from target to source are those of the sides exchanged as text."""
    expected = {}
    for split, pairs in make_task(options_of(prepared, "out")).splits.items():
        expected[split] = [(target, source) for source, target in pairs]
    for asked in (["--source", "en", "--target", "de"], ["--source", "en"], ["--target", "de"]):
        options = parse("translate", "--data-dir", f"{prepared}", "--out", f"{tmp_path}", *asked)
        task = make_task(options)
        assert task.languages == ("en", "de") and task.is_swapped
        assert {split: [*pairs] for split, pairs in task.splits.items()} == expected
        assert task.identity() != make_task(options_of(prepared, "out")).identity()
    corpus = ParallelCorpus.load(task, options)
    sides = zip(*expected["val"], strict=True)
    ids = map(corpus.tokens.tokenizer.encode_as_lists, map(list, sides))
    one, other = text.TokenBatches(corpus.ids["val"]), text.TokenBatches(*ids)
    for index in range(len(other)):
        outputs = one.batch(1, index), other.batch(1, index)
        keras.tree.map_structure(np.testing.assert_array_equal, *outputs)


def test_the_card_has_the_languages_of_the_pairs(prepared, tmp_path, monkeypatch):
    """An earlier version wrote "en" and "de" into settings, by which a run is resumed."""
    monkeypatch.setattr(architectures, "build", lambda *arguments: None)
    monkeypatch.setattr(TranslationRun, "_compile", lambda run: None)
    for asked, languages in ([], ("de", "en")), (["--target", "de"], ("en", "de")):
        out = f"{tmp_path / languages[0]}"
        run = TranslationRun(parse("translate", "--data-dir", f"{prepared}", "--out", out, *asked))
        assert (run.options.source, run.options.target) == languages
        assert {"source": "en", "target": "de"}.items() <= run._settings.items()
        assert ("is_swapped" in run._settings) == bool(asked)


def test_languages_that_prepared_pairs_lack_are_refused(prepared, tmp_path, capsys):
    shared = "translate", "--data-dir", prepared, "--out", tmp_path / "run"
    for asked, message in {
        "--source de --target fr": "must be 'de' and 'en', in either order, as the corpus in",
        "--source fr": "as the corpus in {prepared} was prepared. Received: --source fr.",
        "--source de --target de": "--source and --target must be two languages. Received: ",
        "--variant tok": "--variant is for a --data-dir of files SPLIT.VARIANT.LANGUAGE. Received",
    }.items():
        said = error_of(capsys, *shared, *asked.split())
        assert message.format(prepared=prepared) in said
    manifest = json.loads((prepared / "manifest.json").read_text())
    unnamed = {**manifest, "options": {}}
    copy = tmp_path / "unnamed"
    shutil.copytree(prepared, copy)
    (copy / "manifest.json").write_text(json.dumps(unnamed))
    assert prepared_pairs(copy).languages == (None, None)
    with pytest.raises(ValueError, match="does not name its languages, so leave out --source and"):
        prepared_pairs(copy, "de", "en")


def test_the_dates_have_no_languages(capsys):
    for asked in ("--source fr", "--target en", "--variant tok"):
        assert "--data-dir" in error_of(capsys, "translate", *asked.split())


def test_what_is_no_corpus_of_pairs_is_refused(data, prepared, tmp_path, capsys):
    assert prepare(data, tmp_path / "out", "--target-field", "fr", "--processes", "1") == 2
    said = capsys.readouterr().err
    assert "in the fields 'de' and 'fr'. Received: --field de --target-field fr; the first" in said
    (tmp_path / "a.txt").write_text("eins")
    assert prepare(tmp_path, tmp_path.parent / "none") == 2
    assert "--target-field is for files .jsonl; --source and" in capsys.readouterr().err
    said = error_of(capsys, "language_model", "--data-dir", prepared, "--out", tmp_path / "lm")
    assert "holds pairs, not texts" in said
    texts = tmp_path / "texts"
    one_side = ["--field", "de", "--tokenizer", "characters", "--processes", "1"]
    assert main(["--data-dir", f"{data}", "--out", f"{texts}", *one_side]) == 0
    capsys.readouterr()
    said = error_of(capsys, "translate", "--data-dir", texts, "--out", tmp_path / "run")
    assert "holds texts, not pairs; prepare it with --source and --target, or" in said
