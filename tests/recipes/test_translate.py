"""The recipe from the command line: a whole run, a killed one, and bad input."""

import functools
import gzip
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import recipe_runs
import tensorflow as tf
from fork_server import ForkedPython
from recipe_runs import card, error_of

from recipes.translate.alignment import main
from recipes.translate.dates import date_pairs
from recipes.translate.options import RecipeOptions
from recipes.translate.task import Task
from recipes.translate.training import TranslationRun

WORDS = "one two three four five six seven eight nine ten".split()
SMALL = [
    *("--num-layers", "1", "--tokenizer", "characters", "--beams", "2", "--max-length", "24"),
    *("--tokens-per-batch", "256", "--average-last", "2", "--learning-rate", "0.002"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Counting words, to be written backwards."""
    directory = tmp_path_factory.mktemp("data")
    for split, lines in (("train", 60), ("val", 7), ("test_small", 5)):
        sources = [" ".join(WORDS[(i * k) % 10] for k in range(1, 2 + i % 3)) for i in range(lines)]
        targets = [" ".join(reversed(source.split())) for source in sources]
        for language, side in (("en", sources), ("xx", targets)):
            with gzip.open(directory / f"{split}.{language}.gz", "wt", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in side)
    return directory


def command(data, out, *options):
    arguments = ["--data-dir", str(data), "--source", "en", "--target", "xx", "--out", str(out)]
    return [sys.executable, "-m", "recipes.translate", *arguments, *SMALL, *options]


def run(*arguments):
    return recipe_runs.run("translate", *command(*arguments)[3:])


OPTIONS = ("--epochs", "2", "--checkpoint-steps", "1")


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    """The directory of a whole run."""
    out = tmp_path_factory.mktemp("finished")
    assert run(data, out, *OPTIONS) == 0
    return out


@pytest.mark.slow
def test_a_run_killed_by_the_system_ends_like_an_undisturbed_one(finished, data, tmp_path):
    process = ForkedPython(*command(data, tmp_path, *OPTIONS)[1:], stderr=subprocess.STDOUT)
    checkpoints = tmp_path / "checkpoint"
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        if any(checkpoints.glob("checkpoint-*.npz")):
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert any(checkpoints.iterdir())
    assert not (tmp_path / "card.json").exists()
    assert run(data, tmp_path, *OPTIONS) == 0
    calm_card, card_after_kill = card(finished), card(tmp_path)
    assert card_after_kill["steps"] == calm_card["steps"]
    assert [row["loss"] for row in card_after_kill["history"]] == pytest.approx(
        [row["loss"] for row in calm_card["history"]], abs=1e-6
    )
    assert card_after_kill["results"] == calm_card["results"]
    assert set(calm_card["results"]) == {"val", "test_small"}


@pytest.mark.slow
def test_a_run_writes_card_export_and_files(finished, data):
    for name in ("card.json", "curve.png", "model.keras", "tokenizer.model", "unseen.txt"):
        assert (finished / name).stat().st_size > 0
    assert any(name.startswith("events") for _, _, names in os.walk(finished) for name in names)
    signature = tf.saved_model.load(str(finished / "export" / "1")).signatures["serving_default"]
    assert signature(text=tf.constant(["one two"]))["translation"].shape == (1,)
    entries = card(finished)
    assert entries["command"].startswith("keras-attn translate --data-dir")
    assert entries["parameters"] > 0 and entries["seconds"] > 0 and entries["versions"]["keras"]
    assert entries["training"]["command"] == entries["command"]
    numbers = {
        split: [group["sentences"] for group in groups]
        for split, groups in entries["by_source_length"].items()
    }
    assert numbers == {"val": [1, 2, 2, 2], "test_small": [1, 1, 1, 2]}  # of 7 and 5 lines
    # A finished run trains no more, under a strategy too, and publishes the next version.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TranslationRun, "train", None)
        assert run(data, finished, *OPTIONS, "--strategy", "mirrored") == 0
    assert sorted(os.listdir(finished / "export")) == ["1", "2"]


def fails(capsys, data, out, *options):
    return error_of(capsys, "translate", *command(data, out, *options)[3:])


def write(directory, name, content):
    directory.mkdir(exist_ok=True)
    (directory / name).write_bytes(content)


@pytest.fixture
def broken(tmp_path):
    """A small parallel text, to be broken."""
    directory = tmp_path / "broken"
    for split in ("train", "val"):
        for language in ("en", "xx"):
            write(directory, f"{split}.{language}", b"one two\nthree\n")
    return directory


def empty_reference(directory):
    for language in ("en", "xx"):
        write(directory, f"test.{language}", b"one\ntwo\nthree\n")
    write(directory, "test.xx", b"one\n\nthree\n")


BROKEN = {
    "an empty reference": (empty_reference, ["Line 2 of the file", "test.xx is empty"]),
    "a missing directory": (shutil.rmtree, ["no such directory", "broken"]),
}


@pytest.mark.parametrize("damage", BROKEN)
def test_damaged_data_are_reported_before_training(damage, capsys, broken, tmp_path):
    change, parts = BROKEN[damage]
    change(broken)
    sentence = fails(capsys, broken, tmp_path / "out")
    assert all(part in sentence for part in parts) and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options, said",
    [
        (
            ("--preset", "t5_efficient_tiny", "--residual", "post_norm"),
            "--residual is for transformer and universal_transformer",
        ),
        (("--model", "lstm", "--residual", "post_norm"), "Received: --residual post_norm"),
        (("--model", "lstm", "--packing", "36"), "--packing is for Transformers"),
        (("--model", "t5", "--preset", "transformer_tiny"), "--preset must be one of the model's"),
        (("--model", "gpt"), "invalid choice: 'gpt'"),
        (("--with", "score=aditive"), "score='aditive'"),
        (
            ("--with", "pattern=SlidingWindow(3)"),
            "SlidingWindow is no class of an axis; did you mean Local?",
        ),
        (("--model", "lstm", "--with", "score=dot"), "--with must name an argument of LSTM"),
        (("--with", "vocabulary_size=5"), "--with must name an argument of transformer"),
        (("--preset", "transformer_tyni"), "transformer_tiny"),
        (("--preset", "bert_base"), "transformer_tiny"),
        (("--epochs", "0"), "--epochs must be at least 1"),
        (("--colour",), "--colour"),
        (("--max-source-length", "5"), "--max-source-length does not fit train"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(capsys, broken, tmp_path, options, said):
    assert said in fails(capsys, broken, tmp_path / "out", *options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options, model, preset",
    [
        ((), "transformer", "transformer_tiny"),
        (("--model", "universal_transformer"), "universal_transformer", None),
        (("--preset", "t5_small"), "t5", "t5_small"),
        (("--model", "transformer", "--preset", "transformer_base"), "transformer", None),
        (("--model", "lstm", "--with", "hidden_dim=7", "dropout=0"), "lstm", None),
    ],
)
def test_the_model_and_the_preset_follow_from_each_other(options, model, preset):
    parsed = recipe_runs.parse("translate", *options)
    assert parsed.model == model
    assert parsed.preset is None if model == "lstm" else parsed.preset.startswith(preset or model)
    assert parsed.more == (("hidden_dim=7", "dropout=0") if model == "lstm" else ())


@pytest.mark.slow
def test_an_lstm_trains_on_dates_and_exports(monkeypatch, tmp_path):
    few = functools.partial(date_pairs, 211, 7, 5)
    monkeypatch.setattr("recipes.translate.task.date_pairs", few)
    arguments = ("--out", tmp_path / "run", "--epochs", "2", "--tokens-per-batch", "512")
    arguments = (*arguments, "--model", "lstm", "--beams", "3", "--with", "hidden_dim=11")
    arguments = (*arguments, "--validate-every", "2")
    assert recipe_runs.run("translate", *arguments) == 0
    entries = card(tmp_path / "run")
    losses = [row["loss"] for row in entries["history"]]
    assert len(losses) == 2 and losses[1] < losses[0]
    exact_matches = [row["val_exact_match"] for row in entries["history"]]
    assert exact_matches[0] is None and 0 <= exact_matches[1] <= 1
    assert set(entries["results"]) == {"val", "test"}
    signature = tf.saved_model.load(str(tmp_path / "run/export/1")).signatures["serving_default"]
    assert signature(text=tf.constant(["5 January 1950"]))["translation"].shape == (1,)
    picture = tmp_path / "alignment.png"
    alignment = [str(tmp_path / "run"), "--picture", str(picture), "--max-length", "5"]
    assert main(alignment) == 0
    assert picture.stat().st_size > 0


def test_quarters_by_length_divide_the_sentences_and_the_score():
    sources = ["x" * (7 * place % 11 + 1) for place in range(11)]  # 1 to 11 characters, mixed
    references = [*"abcdefghijk"]
    translations = [text if len(source) < 5 else "-" for text, source in zip(references, sources)]

    task = Task("letters", {}, "exact_match", {})
    groups = task.score_by_length(sources, translations, references)
    assert [group["max_characters"] for group in groups] == [2, 5, 8, 11]
    assert [group["sentences"] for group in groups] == [2, 3, 3, 3]
    assert [group["value"] for group in groups] == [1, 2 / 3, 0, 0]
    few = task.score_by_length(sources[:3], translations[:3], references[:3])
    assert [group["sentences"] for group in few] == [1, 1, 1]


def test_a_directory_without_a_run_has_no_alignment(capsys, tmp_path):
    assert main([str(tmp_path)]) == 2
    assert "RUN must be the directory of a finished run" in capsys.readouterr().err


def test_an_existing_export_is_not_overwritten(capsys, broken, tmp_path):
    kept = tmp_path / "out" / "export" / "3"
    kept.mkdir(parents=True)
    sentence = fails(capsys, broken, tmp_path / "out", "--export-version", "3")
    assert "not overwritten" in sentence
    assert list(kept.iterdir()) == []


def test_a_corrupt_checkpoint_is_reported_and_kept(capsys, broken, tmp_path):
    content = b"not a checkpoint"
    (tmp_path / "out" / "checkpoint").mkdir(parents=True)
    write(tmp_path / "out" / "checkpoint", "resume.npz", content)
    sentence = fails(capsys, broken, tmp_path / "out")
    assert "resume.npz" in sentence
    assert (tmp_path / "out" / "checkpoint" / "resume.npz").read_bytes() == content


@pytest.mark.parametrize(
    "steps, epochs, length", [(None, 48, 7), (5, 1, 5), (7, 1, 7), (8, 1, 7), (30, 4, 7)]
)
def test_a_run_takes_no_more_steps_than_asked(steps, epochs, length):
    """Whole epochs, here of seven batches, or a part of the first one."""
    run = object.__new__(TranslationRun)
    run.options = RecipeOptions(steps=steps, epochs=48)
    run.batches, run._batches = range(7), lambda split: range(2)
    train, valid = run.training_data()
    assert (run.epochs, len(train), len(valid)) == (epochs, length, 2)
    assert len(train.rest(3)) == length - 3
