"""The recipe from the command line: a whole run, and the test's protocol."""

import gzip
import math

import numpy as np
import oracles
import pytest
import tensorflow as tf
from keras import ops
from language_model_runs import BATCH, CONTEXT, SMALL, new_run, parse, run
from recipe_runs import card

from keras_attn import text
from recipes.language_model.architectures import build
from recipes.language_model.options import RECENT
from recipes.text.corpus import decode, encode_lines, train_tokenizer
from recipes.text.text_files import TextFiles

WORDS = "one two three four five six seven eight nine ten".split()


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


@pytest.mark.slow
@pytest.mark.parametrize("model", RECENT)
def test_recent_models_read_the_whole_context(model):
    """Two blocks, of which one may have a window, reach from the last token to the first."""
    options = parse(*SMALL, "--model", model, "--hidden-dim", "8", "--max-length", "4")
    built = build(options, vocabulary_size=17)
    oracles.scramble(built, scale=0.7)
    ids = np.arange(1, CONTEXT + 1)[None]
    logits = np.asarray(built({"token_ids": ids}))[0, -1]
    ids[0, 0] = 16
    assert logits.shape == (17,)
    assert np.abs(np.asarray(built({"token_ids": ids}))[0, -1] - logits).max() > 1e-4


@pytest.mark.slow
def test_a_run_writes_card_export_and_files(data, tmp_path, capsys):
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
    assert len(facts["history"]) == 3 and facts["steps"] == 9


def losses(logits, labels):
    """The negative log-likelihood of labels (T,) in bits, from logits (T, V) in float64."""
    logits = np.asarray(logits, "float64")
    peak = logits.max(axis=-1, keepdims=True)
    log_sum = np.log(np.exp(logits - peak).sum(axis=-1)) + peak[:, 0]
    return (log_sum - logits[np.arange(len(labels)), labels]) / math.log(2)


@pytest.mark.slow
def test_windows_score_each_token_from_its_window(data, tmp_path):
    stride = 5
    run = new_run(data, tmp_path, "--stride", str(stride))
    ids, bits = run.corpus.ids["test"][:], []
    padded = np.pad(ids, (0, CONTEXT))
    starts = range(0, len(ids), stride)
    logits = run.model({"token_ids": np.stack([padded[s : s + CONTEXT] for s in starts])})
    for place in range(1, len(ids)):
        row = next(
            r for r, s in enumerate(starts) if place <= s + CONTEXT
        )  # the first that reaches
        last = place - 1 - starts[row]
        bits.append(losses(logits[row, last : last + 1], ids[place : place + 1]))
    assert run.evaluate()["test"]["value"] == pytest.approx(np.mean(bits), abs=1e-5)


@pytest.mark.slow
def test_a_long_memory_scores_as_reading_the_whole_text(data, tmp_path):
    """A memory that holds all that came before is the same as to read each part in one go."""
    options = ("--model", "transformer_xl", "--context", "5", "--eval-memory", "100")
    run = new_run(data, tmp_path, *options)
    assert run.options.memory == 5  # as it is trained, less than a part
    ids, bits = run.corpus.ids["test"][:], []
    starts = [(len(ids) - 1) * row // BATCH for row in range(BATCH + 1)]
    for start, end in zip(starts, starts[1:]):
        inputs = {"token_ids": ops.array(ids[None, start:end]), **run.model.initial_memory(1)}
        bits.extend(losses(run.model(inputs)["logits"][0], ids[start + 1 : end + 1]))
    assert len(bits) == len(ids) - 1
    assert run.evaluate()["test"]["value"] == pytest.approx(np.mean(bits), abs=1e-5)


def encode(tokenizer, path, part):
    path.write_text(part)
    ids, characters = zip(*encode_lines(tokenizer, TextFiles([path])), strict=True)
    return np.concatenate(ids), sum(characters)


def test_subwords_stand_for_the_characters_of_their_lines(tmp_path, monkeypatch):
    part, path = "two three\n\n  four  five\nsix", tmp_path / "part.txt"
    path.write_text("\n".join(WORDS * 3))
    tokenizer = train_tokenizer("bpe", TextFiles([path]), 30)
    exact = text.Characters("\n abcdefghijklmnopqrstuvwxyz")
    for block in (2**18, 3):  # bytes that are read at once
        monkeypatch.setattr("recipes.common.files._BLOCK", block)
        monkeypatch.setattr("recipes.text.corpus._LINES", block)
        ids, characters = encode(tokenizer, path, part)
        assert decode(tokenizer, ids) == "two three\n\nfour five\nsix"
        assert characters == len("two three\n\nfour five\nsix")
        assert list(ids).count(tokenizer.eos_id) == 3
        ids, characters = encode(exact, path, part)
        assert decode(exact, ids) == part and characters == len(part) == len(ids)
