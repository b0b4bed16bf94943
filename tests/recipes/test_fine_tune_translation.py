"""Translation from folders of Hugging Face, from the command line to the answers of an export."""

import csv
import shutil

import checkpoint_folders
import keras
import numpy as np
import pytest
import recipe_runs
from fork_server import ROOT
from recipe_runs import card

from keras_attn import convert, generation, text
from recipes.common.card import read_history
from recipes.fine_tune.training import FineTuneRun

WORDS = {"eins": "one", "zwei": "two", "drei": "three", "vier": "four"}


def marian_folder(path):
    """A folder with the weights of a golden file, and a tokenizer of its vocabulary."""
    config, weights, _ = checkpoint_folders.load_golden("marian")
    files = ROOT / "tests/convert/golden_ids/marian"
    tokenizer = convert.hugging_face.tokenizer.read_tokenizer(files)
    size = tokenizer.vocabulary_size
    config, weights = checkpoint_folders.with_vocabulary(config, weights, size)
    pad_id, eos_id = tokenizer.pad_id, tokenizer.eos_id
    ids = {"pad_token_id": pad_id, "eos_token_id": eos_id, "decoder_start_token_id": pad_id}
    ids |= {"bos_token_id": pad_id, "forced_eos_token_id": None, "max_length": 30}
    checkpoint_folders.write_folder(path, {**config, **ids}, weights)
    for file in files.iterdir():
        if file.suffix != ".npz":
            shutil.copy(file, path)
    return path


def table(path):
    generator = np.random.default_rng(7)
    rows = [generator.choice([*WORDS], generator.integers(1, 3)) for _ in range(120)]
    rows = [(" ".join(row), " ".join(WORDS[word] for word in row)) for row in rows]
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("de", "en"), *rows])
    return path


COLUMNS = ("--task", "translation", "--text-column", "de", "--label-column", "en")


@pytest.mark.slow
def test_a_folder_learns_and_its_export_answers_as_generate(tmp_path):
    import tensorflow as tf

    folder, out = marian_folder(tmp_path / "folder"), tmp_path / "out"
    options = ("--model", folder, "--train", table(tmp_path / "rows.csv"), "--max-length", 30)
    options = (*COLUMNS, *options, "--learning-rate", 0.01, "--epochs", 6, "--batch-size", 16)
    assert recipe_runs.run("fine_tune", "--out", out, *map(str, options)) == 0
    losses = [row["val_perplexity"] for row in read_history(out / "history.csv")]
    assert min(losses) < 0.5 * losses[0]
    assert {"value", "exact_match"} <= card(out)["results"]["valid"].keys()
    signatures = tf.saved_model.load(str(out / "export/1")).signatures
    sources = ["zwei drei", "eins"]
    translations = signatures["serving_default"](text=tf.constant(sources))["translation"]
    model = keras.models.load_model(out / "model.keras")
    tokenizer = text.load(out / "tokenizer.model")
    decoding = convert.generation_options(folder, is_encoder_decoder=True)
    for row, source in enumerate(sources):  # one by one: without padding
        ids, _ = generation.generate(model, tokenizer.encode([source])[0], **decoding)
        expected = tokenizer.for_targets().decode(ids)[0].numpy()
        assert translations[row].numpy() == expected


@pytest.mark.slow
def test_a_folder_of_another_kind_or_without_a_tokenizer_is_refused(tmp_path):
    rows = table(tmp_path / "rows.csv")
    bert = tmp_path / "bert"
    config, weights, _ = checkpoint_folders.load_golden("bert")
    checkpoint_folders.write_folder(
        bert,
        *checkpoint_folders.with_vocabulary(config, weights, 330),  # of the tokenizer
    )
    for file in (ROOT / "tests/convert/golden_ids/bert").glob("*.json"):
        shutil.copy(file, bert)
    t5 = tmp_path / "t5"
    checkpoint_folders.write_folder(t5, *checkpoint_folders.load_golden("t5")[:2])
    (tmp_path / "nothing").mkdir()
    for folder, message in (
        (bert, "--task translation needs a --model of texts of the class EncoderDecoder"),
        (t5, "has no tokenizer that an export can hold"),
        (tmp_path / "nothing", "no file 'config.json'"),
    ):
        arguments = (*COLUMNS, "--train", rows, "--model", folder, "--out", tmp_path / "out")
        with pytest.raises(ValueError, match=message) as error:
            FineTuneRun(recipe_runs.parse("fine_tune", *map(str, arguments)))
        assert "\n" not in str(error.value)
