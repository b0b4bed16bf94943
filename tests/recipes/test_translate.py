"""The recipe from the command line: a whole run, a killed one, and bad input."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import tensorflow as tf

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
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
    """The exit code of the recipe, in this process for speed."""
    from recipes.translate import __main__ as recipe

    sys.argv[1:] = command(*arguments)[3:]
    return recipe.main()


def card(out):
    return json.loads((out / "card.json").read_text())


def test_a_killed_run_ends_like_an_undisturbed_one(data, tmp_path):
    options = ("--epochs", "3", "--checkpoint-steps", "1")
    assert run(data, tmp_path / "calm", *options) == 0
    process = subprocess.Popen(
        command(data, tmp_path / "killed", *options),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": ROOT},
    )
    checkpoints = tmp_path / "killed" / "checkpoint"
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        if any(checkpoints.glob("checkpoint-*.npz")):
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert any(checkpoints.iterdir())
    assert not (tmp_path / "killed" / "card.json").exists()
    assert run(data, tmp_path / "killed", *options) == 0
    calm_card, card_after_kill = card(tmp_path / "calm"), card(tmp_path / "killed")
    assert card_after_kill["steps"] == calm_card["steps"]
    assert [row["loss"] for row in card_after_kill["history"]] == pytest.approx(
        [row["loss"] for row in calm_card["history"]], abs=1e-6
    )
    assert card_after_kill["results"] == calm_card["results"]
    assert set(calm_card["results"]) == {"val", "test_small"}


def test_what_a_run_leaves(data, tmp_path):
    environment = {**os.environ, "PYTHONPATH": ROOT}
    subprocess.run(command(data, tmp_path, "--epochs", "1"), check=True, cwd=ROOT, env=environment)
    for name in ("card.json", "curve.png", "model.keras", "tokenizer.model", "unseen.txt"):
        assert (tmp_path / name).stat().st_size > 0
    assert any(name.startswith("events") for _, _, names in os.walk(tmp_path) for name in names)
    signature = tf.saved_model.load(str(tmp_path / "export" / "1")).signatures["serving_default"]
    assert signature(text=tf.constant(["one two"]))["translation"].shape == (1,)
    facts = card(tmp_path)
    assert facts["command"].startswith("python -m recipes.translate --data-dir")
    assert facts["parameters"] > 0 and facts["seconds"] > 0 and facts["versions"]["keras"]
    # Started again it has nothing to train, and publishes the next version beside the first.
    assert run(data, tmp_path, "--epochs", "1") == 0
    assert sorted(os.listdir(tmp_path / "export")) == ["1", "2"]


def test_other_options_in_the_same_directory(capsys, broken, tmp_path):
    from recipes.settings import save_settings
    from recipes.translate.options import parse
    from recipes.translate.settings import settings
    from recipes.translate.task import parallel_text

    (tmp_path / "out").mkdir()
    path = tmp_path / "out" / "settings.json"
    options = parse(command(broken, tmp_path / "out")[3:])
    save_settings(path, settings(options, parallel_text(broken, "en", "xx", "raw")))
    before = path.read_bytes()
    sentence = fails(capsys, broken, tmp_path / "out", "--seed", "7")
    assert "seed=0, now 7" in sentence and "--out" in sentence
    write(broken, "val.xx", b"one two\nfour\n")
    assert "data have changed" in fails(capsys, broken, tmp_path / "out")
    assert path.read_bytes() == before and len(list((tmp_path / "out").iterdir())) == 1


def fails(capsys, data, out, *options):
    """The one sentence that the recipe says of bad input, in this process for speed."""
    try:
        code = run(data, out, *options)
    except SystemExit as stop:  # argparse
        code = stop.code
    assert code == 2
    return capsys.readouterr().err.strip().splitlines()[-1]


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


def test_missing_directory(capsys, tmp_path):
    sentence = fails(capsys, tmp_path / "nowhere", tmp_path / "out")
    assert "no such directory" in sentence and "nowhere" in sentence
    assert not (tmp_path / "out").exists()


def test_missing_file(capsys, broken, tmp_path):
    (broken / "val.xx").unlink()
    assert "val.xx" in fails(capsys, broken, tmp_path / "out")


def test_different_line_counts(capsys, broken, tmp_path):
    write(broken, "train.xx", b"one\n")
    sentence = fails(capsys, broken, tmp_path / "out")
    assert "train.en with 2" in sentence and "train.xx with 1" in sentence


def test_empty_file(capsys, broken, tmp_path):
    write(broken, "val.en", b"")
    assert "val.en is empty" in fails(capsys, broken, tmp_path / "out")


def test_invalid_utf8(capsys, broken, tmp_path):
    write(broken, "train.en", b"one two\n\xff\xfe\n")
    sentence = fails(capsys, broken, tmp_path / "out")
    assert "Line 2" in sentence and "train.en" in sentence and "UTF-8" in sentence


def test_too_long_a_source(capsys, broken, tmp_path):
    sentence = fails(capsys, broken, tmp_path / "out", "--max-source-length", "5")
    assert "line 1 has 8 tokens" in sentence and "max_length=5" in sentence
    assert not (tmp_path / "out").exists()


def test_wrong_preset(capsys, broken, tmp_path):
    for name in ("transformer_tyni", "bert_base"):
        sentence = fails(capsys, broken, tmp_path / "out", "--preset", name)
        assert name in sentence and "transformer_tiny" in sentence


def test_existing_export(capsys, broken, tmp_path):
    kept = tmp_path / "out" / "export" / "3"
    kept.mkdir(parents=True)
    sentence = fails(capsys, broken, tmp_path / "out", "--export-version", "3")
    assert "not overwritten" in sentence
    assert list(kept.iterdir()) == []


def test_corrupt_checkpoint(capsys, broken, tmp_path):
    content = b"not a checkpoint"
    (tmp_path / "out" / "checkpoint").mkdir(parents=True)
    write(tmp_path / "out" / "checkpoint", "resume.npz", content)
    sentence = fails(capsys, broken, tmp_path / "out")
    assert "resume.npz" in sentence
    assert (tmp_path / "out" / "checkpoint" / "resume.npz").read_bytes() == content


def test_unknown_option_and_bad_number(capsys, broken, tmp_path):
    assert "--epochs must be at least 1" in fails(capsys, broken, tmp_path / "out", "--epochs", "0")
    assert "--colour" in fails(capsys, broken, tmp_path / "out", "--colour")


def test_rows_of_several_pairs(data, tmp_path):
    """Every pair is trained on: as many steps as there are packed batches."""
    assert run(data, tmp_path, "--epochs", "2", "--packing", "36") == 0
    from keras_attn.text import PackedBatches, load

    tokenizer, sides = load(str(tmp_path / "tokenizer.model")), []
    for language in ("en", "xx"):
        with gzip.open(data / f"train.{language}.gz", "rt") as file:
            sides.append(tokenizer.encode_as_lists(file.read().splitlines()))
    packed = PackedBatches(
        *sides, tokens_per_batch=card(tmp_path)["options"]["tokens_per_batch"], row_length=36
    )
    assert card(tmp_path)["steps"] == 2 * len(packed)
