"""The recipe from the command line: whole runs, interrupted ones, the test's protocol, bad input."""

import contextlib
import gzip
import json
import math
import shutil
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_attn import text
from keras_attn.callbacks import Resume
from recipes.language_model import __main__ as recipe
from recipes.language_model.options import parse
from recipes.text.corpus import decode, encode, train_tokenizer

WORDS = "one two three four five six seven eight nine ten".split()
CONTEXT, BATCH = 12, 3
ON_BATCH = "on_train_batch_end"
SMALL = [
    *("--num-layers", "2", "--num-heads", "2", "--hidden-dim", "6", "--intermediate-dim", "7"),
    *("--context", str(CONTEXT), "--batch-size", str(BATCH), "--steps", "9", "--epochs", "3"),
    *("--learning-rate", "0.01"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Counting words, the training split compressed."""
    directory = tmp_path_factory.mktemp("data")
    for split, lines in (("train", 23), ("valid", 5), ("test", 4)):
        content = "".join(f"{WORDS[i % 10]} {WORDS[(3 * i) % 7]}\n" for i in range(lines)).encode()
        if split == "train":
            (directory / "train.txt.gz").write_bytes(gzip.compress(content))
        else:
            (directory / f"{split}.txt").write_bytes(content)
    return directory


def run(data, out, *options):
    """The exit code of the recipe, in this process for speed."""
    sys.argv[1:] = ["--data-dir", str(data), "--out", str(out), *SMALL, *options]
    return recipe.main()


def made(data, out, *options):
    """A run that has not begun."""
    from recipes.language_model.training import Run

    return Run(parse(["--data-dir", str(data), "--out", str(out), *SMALL, *options]))


def card(out):
    return json.loads((out / "card.json").read_text())


# A hook of `Resume`, and the arguments of the call after which training is to end.
MOMENTS = {"after its first epoch": ("on_epoch_end", 0), "within its second": (ON_BATCH, 1)}


@pytest.fixture
def killed(monkeypatch):
    """Inside, training ends with an interrupt as soon as so much of it is saved."""

    @contextlib.contextmanager
    def killed(moment):
        name, last = MOMENTS[moment]
        original = getattr(Resume, name)

        def save_and_die(self, place, logs=None):
            original(self, place, logs)
            if place == last and (name != ON_BATCH or self._epoch == 1):
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Resume, name, save_and_die)
            yield

    return killed


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_run_ends_like_an_undisturbed_one(data, tmp_path, moment, killed):
    """What is logged of a begun epoch is that of the whole epoch; the memory is as it was."""
    calm, again = tmp_path / "calm", tmp_path / "killed"
    options = ("--model", "transformer_xl", "--checkpoint-steps", "2")
    assert run(data, calm, *options) == 0
    with killed(moment):
        assert run(data, again, *options) == 130
    assert not (again / "card.json").exists()
    assert run(data, again, *options) == 0
    rows = [card(out)["history"] for out in (again, calm)]
    for name in ("loss", "bits_per_character", "val_loss"):
        found, expected = ([row[name] for row in part] for part in rows)
        assert found == pytest.approx(expected, abs=1e-6), name
    assert [row["epoch"] for row in rows[0]] == [0, 1, 2]
    assert card(again)["steps"] == card(calm)["steps"] == 9
    assert card(again)["sample"] == card(calm)["sample"]
    value = card(calm)["results"]["test"]["value"]
    assert card(again)["results"]["test"]["value"] == pytest.approx(value, abs=1e-6)


def test_auxiliary_losses_go_on_where_they_were(data, tmp_path, killed):
    weights = []
    for name in ("calm", "killed", "killed"):
        keras.utils.set_random_seed(0)
        begun = made(data, tmp_path / name, "--model", "deep_char_transformer")
        if name == "killed" and len(weights) == 1:
            with killed("after its first epoch"), pytest.raises(KeyboardInterrupt):
                begun.train()
        else:
            begun.train()
        weights.append(begun.trained.get_weights())
        progress = begun.trained.progress
    assert progress == 1.0
    for calm, again in zip(weights[0], weights[2]):
        np.testing.assert_allclose(again, calm, atol=1e-5)
    plain = made(data, tmp_path / "o", "--model", "deep_char_transformer", "--no-auxiliary-losses")
    assert plain.trained is plain.model


def test_what_a_run_leaves(data, tmp_path, capsys):
    assert run(data, tmp_path, "--model", "gpt", "--stride", "5", "--max-length", "4") == 0
    for name in ("card.json", "curve.png", "model.keras", "tokenizer.model", "settings.json"):
        assert (tmp_path / name).stat().st_size > 0
    facts = card(tmp_path)
    test = facts["results"]["test"]
    said = capsys.readouterr().out
    assert f"bits_per_character {test['value']:.4g} (windows of 12, stride 5)" in said
    assert test["perplexity"] == pytest.approx(2 ** test["value"], rel=1e-4)  # of characters
    prompt, written = facts["sample"]["prompt"], facts["sample"]["continuation"]
    assert (data / "test.txt").read_text().startswith(prompt) and len(prompt) == CONTEXT - 4
    assert 1 <= len(written) <= 4 and f"{prompt}[...]{written}" in said
    # What the recipe wrote is what a server writes after the same prompt.
    loaded = tf.saved_model.load(str(tmp_path / "export" / "1"))
    answer = loaded.signatures["serving_default"](text=tf.constant([prompt]))
    assert answer["continuation"].numpy()[0].decode() == written
    # Started again it has nothing to train, under a strategy too, and publishes the next version.
    assert run(data, tmp_path, "--max-length", "4", "--strategy", "mirrored") == 0
    again = card(tmp_path)
    assert (tmp_path / "export" / "2").is_dir()
    assert len(again["history"]) == 3 and again["steps"] == facts["steps"] == 9


@pytest.mark.parametrize("model", ["adaptive_span_transformer", "reformer", "sparse_transformer"])
def test_the_other_models_and_their_twins_train(data, tmp_path, model):
    """A twin has other numbers."""
    losses = []
    for options in ((), ("--full-attention",)):
        run = made(data, tmp_path / f"{len(losses)}", "--model", model, *options)
        run.train()
        losses.append(run.evaluate()["test"]["value"])
    assert np.isfinite(losses).all() and losses[0] != losses[1]
    if model == "adaptive_span_transformer":
        assert run._spans()["spans"]["by_layer"] == [[CONTEXT, CONTEXT]] * 2


def losses(logits, labels):
    """The negative log-likelihood of labels (T,) in bits, from logits (T, V) in float64."""
    logits = np.asarray(logits, "float64")
    peak = logits.max(axis=-1, keepdims=True)
    log_sum = np.log(np.exp(logits - peak).sum(axis=-1)) + peak[:, 0]
    return (log_sum - logits[np.arange(len(labels)), labels]) / math.log(2)


@pytest.mark.parametrize("stride", [1, 5, CONTEXT])
def test_windows_score_as_the_protocol_says(data, tmp_path, stride):
    run = made(data, tmp_path, "--stride", str(stride))
    ids, bits = run.corpus.ids["test"], []
    for place in range(1, len(ids)):
        start = 0
        while start + CONTEXT < place:  # the first window that reaches the token
            start += stride
        before = ids[start:place]
        bits.append(losses(run.model({"token_ids": before[None]})[0, -1:], ids[place : place + 1]))
    assert run.evaluate()["test"]["value"] == pytest.approx(np.mean(bits), abs=1e-5)


def test_a_longer_memory_scores_as_the_whole_text_does(data, tmp_path):
    """A memory that holds all that came before is the same as to read each part in one go."""
    options = ("--model", "transformer_xl", "--context", "5", "--eval-memory", "100")
    run = made(data, tmp_path, *options)
    assert run.options.memory == 5  # as it is trained, less than a part
    ids, bits = run.corpus.ids["test"], []
    starts = [(len(ids) - 1) * row // BATCH for row in range(BATCH + 1)]
    for start, end in zip(starts, starts[1:]):
        inputs = {"token_ids": ops.array(ids[None, start:end]), **run.model.initial_memory(1)}
        bits.extend(losses(run.model(inputs)["logits"][0], ids[start + 1 : end + 1]))
    assert len(bits) == len(ids) - 1
    assert run.evaluate()["test"]["value"] == pytest.approx(np.mean(bits), abs=1e-5)


def test_subwords_stand_for_the_characters_of_their_lines():
    part = "two three\n\n  four  five\nsix"
    tokenizer = train_tokenizer("bpe", "\n".join(WORDS * 3), 30)
    ids, characters = encode(tokenizer, part)
    assert decode(tokenizer, ids) == "two three\n\nfour five\nsix"
    assert characters == len("two three\n\nfour five\nsix")
    assert list(ids).count(tokenizer.eos_id) == 3
    exact = text.Characters("\n abcdefghijklmnopqrstuvwxyz")
    ids, characters = encode(exact, part)
    assert decode(exact, ids) == part and characters == len(part) == len(ids)


def fails(capsys, data, out, *options):
    """The one sentence that the recipe says of bad input."""
    try:
        code = run(data, out, *options)
    except SystemExit as stop:  # argparse
        code = stop.code
    assert code == 2
    return capsys.readouterr().err.strip().splitlines()[-1]


@pytest.fixture
def broken(tmp_path):
    """A small text, to be broken."""
    directory = tmp_path / "broken"
    directory.mkdir()
    for split in ("train", "valid", "test"):
        (directory / f"{split}.txt").write_bytes(b"one two three\n" * 5)
    return directory


def test_bad_files(capsys, broken, tmp_path):
    out = tmp_path / "out"
    assert "no such directory" in fails(capsys, tmp_path / "nowhere", out)
    (broken / "valid.txt").write_bytes(b"one \xff two")
    assert "valid.txt is not UTF-8" in fails(capsys, broken, out)
    (broken / "valid.txt").write_bytes(b"")
    assert "valid.txt is empty" in fails(capsys, broken, out)
    (broken / "valid.txt.gz").write_bytes(gzip.compress(b"one two")[:-3])
    assert "valid.txt.gz is not a complete gzip file" in fails(capsys, broken, out)
    for name in ("valid.txt", "valid.txt.gz"):
        (broken / name).unlink()
    assert "no file valid.txt.gz or valid.txt" in fails(capsys, broken, out)
    assert not out.exists()


def test_bad_text(capsys, broken, tmp_path):
    (broken / "short").write_text("short")
    for name, said in (
        ("missing", "does not exist"),
        ("", "is a directory"),
        ("short", "A tenth of the text"),
    ):
        sys.argv[1:] = ["--text", str(broken / name), "--out", str(tmp_path / "out")]
        assert recipe.main() == 2
        assert said in capsys.readouterr().err
    (broken / "test.txt").write_text("abc")
    sentence = fails(capsys, broken, tmp_path / "out")
    assert "test" in sentence and "3 tokens" in sentence and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options, said",
    [
        (("--steps", "0"), "--steps must be at least 1"),
        (("--text", "x"), "exclude each other"),
        (("--stride", "13"), "--stride must be at most the context"),
        (("--max-length", "12"), "--max-length must leave room"),
        (("--num-heads", "4"), "--num-heads must divide --hidden-dim"),
        (("--full-attention",), "--full-attention is for adaptive_span_transformer"),
        (("--model", "gtp"), "invalid choice: 'gtp'"),
        (("--temperature", "0"), "--temperature must be above 0"),
        (("--preset", "bert_base"), "--preset must be one of gpt2_small"),
        (("--with", "colour=1"), "--with must name an argument of gpt"),
        (("--with", "vocabulary_size=5"), "--with must name an argument of gpt"),
        (("--with", "num_layers=abc"), "num_layers='abc'"),
        (("--model", "sparse_transformer", "--with", "image_shape=3"), "--with must fit sparse"),
        (("--tokenizer", "bpe", "--vocabulary-size", "5"), "--vocabulary-size does not fit"),
        (("--model", "reformer", "--context", "13"), "--context must be a product"),
    ],
)
def test_bad_options(capsys, broken, tmp_path, options, said):
    assert said in fails(capsys, broken, tmp_path / "out", *options)
    assert not (tmp_path / "out").exists()


def test_presets():
    sizes = ("num_layers", "num_heads", "hidden_dim", "intermediate_dim", "dropout")
    options = parse(["--preset", "transformer_xl_enwik8_24", "--num-layers", "2"])
    assert options.model == "transformer_xl" and options.memory == options.eval_memory == 768
    assert [getattr(options, name) for name in sizes] == [2, 8, 1024, 3072, 0.15]
    assert options.more == ["attention_dropout=0.15"]
    options = parse(["--preset", "reformer_enwik8", "--with", "num_rounds=4"])
    assert options.context == 128 * 512 and "axial_shape=(128, 512)" in options.more
    assert options.more[-1] == "num_rounds=4"
    options = parse(["--preset", "reformer_enwik8", "--context", "2048"])
    assert options.context == 2048 and not any("axial_shape" in more for more in options.more)
    options = parse(["--preset", "deep_char_12"])
    assert (options.model, options.context, options.more) == ("deep_char_transformer", 512, [])


def test_another_run_in_the_same_directory(capsys, broken, tmp_path):
    out = tmp_path / "out"
    made(broken, out).begin()
    sentence = fails(capsys, broken, out, "--seed", "7")
    assert "seed=0, now 7" in sentence and "--out" in sentence
    moved = tmp_path / "elsewhere" / "broken"
    shutil.copytree(broken, moved)
    made(moved, out)
    with open(moved / "valid.txt", "a") as file:
        file.write("more")
    assert "data have changed" in fails(capsys, moved, out)
    (out / "settings.json").write_text("[]")
    assert "settings.json is damaged; give another --out" in fails(capsys, broken, out)


def test_a_start_that_fails_leaves_the_directory_free(capsys, broken, tmp_path):
    """A model that can be made, and not trained."""
    assert run(broken, tmp_path, "--with", "max_length=5") == 2
    assert "max_length=5" in capsys.readouterr().err
    assert not (tmp_path / "settings.json").exists()
    made(broken, tmp_path)


def test_out_is_a_directory(capsys, broken, tmp_path):
    for out in (broken / "test.txt", broken / "test.txt" / "run"):
        sentence = fails(capsys, broken, out)
        assert "--out must be a directory" in sentence and f"--out {out}" in sentence
