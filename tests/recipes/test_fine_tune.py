"""The recipe from the command line: labels, early stopping, a saved model, exports, bad input."""

import csv
import json

import keras
import numpy as np
import oracles
import pytest
import recipe_runs
import tensorflow as tf
from marks import slow_but
from recipe_runs import card, error_of

from keras_attn import convert, depth, models, patterns, text
from recipes.fine_tune.examples import read_examples
from recipes.fine_tune.initial_model import load_or_build
from recipes.fine_tune.language_model import LanguageModel
from recipes.fine_tune.model_changes import change_model
from recipes.fine_tune.task import Task, classifier_of
from recipes.fine_tune.training import FineTuneRun

SMALL = [
    *("--num-layers", "1", "--num-heads", "2", "--hidden-dim", "16", "--intermediate-dim", "32"),
    *("--vocabulary-size", "60", "--max-length", "13", "--batch-size", "16"),
]
FRUIT, CITY = ("apple", "pear", "plum"), ("paris", "rome", "oslo")


def parse(*options):
    return recipe_runs.parse("fine_tune", *map(str, options))


def write(path, rows, columns=("text", "label")):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Sentences about fruit, and fewer about cities."""
    generator = np.random.default_rng(3)

    def sentence(words):
        return " ".join(generator.choice([*words, "the", "a", "is", "here"], 5)) + " " + words[0]

    rows = [(sentence(FRUIT), "fruit") for _ in range(90)]
    rows += [(sentence(CITY), "city") for _ in range(30)]
    return write(tmp_path_factory.mktemp("data") / "rows.csv", rows)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A masked language model with its tokenizer, as a run leaves them."""
    folder = tmp_path_factory.mktemp("saved")
    tokenizer = text.Characters.train(["abcdefghijklmnopqrstuvwxyz "])
    tokenizer.save(folder / "tokenizer.model")
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 6, "intermediate_dim": 7}
    model = models.bert(tokenizer.vocabulary_size + 1, **sizes, max_length=17)
    oracles.scramble(model)
    model.save(folder / "model.keras")
    return folder / "model.keras"


def loaded(*options):
    return load_or_build(Task({}, parse(*options)), [])


@pytest.mark.slow
def test_a_saved_model_keeps_its_weights_under_another_pattern_and_dropout(saved):
    model, tokenizer = loaded("--model", saved)
    assert tokenizer.vocabulary_size == model.embedding.vocabulary_size - 1
    changed = ("--pattern", "local", "--window", 2, "--dropout", 0.3)
    other, _ = loaded("--model", saved, *changed)
    attention = other.encoder.blocks[0].attention
    assert attention.pattern == patterns.Local(2, causal=False)
    assert attention.dropout == other.dropout == 0.3
    for one, same in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(one, same)
    anew, _ = loaded("--model", saved, "--from-scratch")
    tables = [x.embedding.get_weights()[0] for x in (anew, model)]
    assert tables[0].shape == tables[1].shape and np.abs(tables[0] - tables[1]).max() > 0.1
    causal = models.gpt(9, num_layers=1, num_heads=1, hidden_dim=2, intermediate_dim=3)
    causal = change_model(classifier_of(causal, 2, pooling="mean"), parse(*changed))
    assert causal.encoder.blocks[0].attention.pattern == patterns.Local(2)
    ids = np.array([[5, 6, 7, 8, 9]])
    far = np.array([[5, 6, 7, 8, 4]])
    first = [np.asarray(x({"token_ids": i}))[0, 0] for x in (model, other) for i in (ids, far)]
    assert np.abs(first[0] - first[1]).max() > 1e-4
    np.testing.assert_array_equal(first[2], first[3])


@pytest.mark.slow
def test_blocks_with_norms_before_their_sublayers_can_be_reversible(saved, tmp_path):
    tokenizer = text.load(saved.parent / "tokenizer.model")
    tokenizer.save(tmp_path / "tokenizer.model")
    sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": 6, "intermediate_dim": 7}
    model = models.gpt(tokenizer.vocabulary_size, **sizes, max_length=17)
    oracles.scramble(model)
    model.save(tmp_path / "model.keras")
    options = ("--task", "language_model", "--depth", "reversible")
    task = LanguageModel({}, parse(*options, "--model", tmp_path / "model.keras"))
    loaded_model, _ = load_or_build(task, [])
    assert isinstance(loaded_model.depth, depth.Reversible)
    for one, same in zip(model.get_weights(), loaded_model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, same)
    with pytest.raises(ValueError, match="residual='pre_norm'"):
        loaded("--model", saved, "--depth", "reversible")


TASKS = {"regression": int, "tokens": str, "translation": str}
TASKS |= {"classification": str, "language_model": str, "several_labels": list, "answers": dict}


@pytest.mark.parametrize("task", slow_but(["regression", "tokens"], TASKS))
def test_data_made_offline_have_labels_and_a_test(task):
    _, splits = read_examples(parse("--task", task))
    assert [*splits] == ["train", "valid", "test"]
    assert all(isinstance(x, TASKS[task]) for x in splits["test"].labels)
    assert (len({*map(str, splits["train"].labels)}) > 2) == (task != "language_model")
    assert not {*splits["train"].texts} & {*splits["test"].texts}


@pytest.mark.parametrize(
    "options, message",
    [
        (["--pattern", "local"], "--pattern local and --window need each other"),
        (["--model", "a", "--num-layers", "3"], "--num-layers does not fit --model"),
        (["--model", "a", "--hidden-dim", "6"], "--hidden-dim does not fit --model"),
        (["--tokenizer", "a"], "--tokenizer does not fit a new model; give --model"),
        (["--valid", "a.csv"], "--valid does not fit the data that the recipe makes"),
        (["--label-column", "a"], "--label-column does not fit the data that the recipe makes"),
        (
            ["--train", "a.csv", "--valid", "b.csv", "--valid-share", "0.2"],
            "--valid-share does not fit --valid",
        ),
        (
            ["--task", "language_model", "--train", "a.csv", "--label-column", "a"],
            "--label-column does not fit --task language_model, which has no labels",
        ),
        (["--from-scratch"], "--from-scratch is for --model"),
        (["--lora", "2"], "--lora needs --model. Received: --lora 2 and"),
        (["--model", "a", "--lora-embedding"], "--lora-embedding is for --lora"),
        (
            ["--model", "a", "--lora", "2", "--from-scratch"],
            "--lora and --from-scratch exclude each",
        ),
        (["--task", "regression", "--class-weights", "balanced"], "for --task classification"),
        (["--task", "tokens", "--pooling", "mean"], "--pooling does not fit --task tokens"),
        (["--task", "translation", "--pattern", "dense"], "--pattern does not fit --task translat"),
        (
            ["--task", "translation", "--depth", "reversible"],
            "--depth does not fit --task translat",
        ),
    ],
)
def test_bad_options_are_reported(options, message, capsys):
    assert message in error_of(capsys, "fine_tune", *options)


@pytest.mark.parametrize(
    "rows, options, message",
    [
        (
            [("a", "x"), ("b", "x")],
            ("--valid", "x"),
            "'label' must have two labels at least. Received: only 'x'",
        ),
        ([("a", "x"), ("b", "y")], ("--valid", "z"), "rows of valid have the label 'z', which no"),
        ([("a", "x")], ("--valid-share", "0.5"), "--valid-share must hold out a row"),
        ([("a", "x"), ("b", "y")], ("--text-column", "t"), "no column 't' in"),
        ([("a", "1"), ("b", "y")], ("--task", "regression", "--valid", "2"), "finite numbers.*'y'"),
        ([("a", "1"), ("b", "1")], ("--task", "regression", "--valid", "2"), "two different num"),
        ([("a", "x"), ("b", "y")], ("--valid", "x", "--max-length", "18"), "and 17 positions"),
        ([("a", "x"), ("b", "y")], ("--valid", "x", "--model", "none.keras"), "does not exist"),
        (
            [("a", "x"), ("b", "y")],
            ("--valid", "x", "--tokenizer", "none"),
            "--tokenizer must be a file",
        ),
    ],
)
def test_bad_data_are_refused_in_one_sentence(rows, options, message, saved, tmp_path):
    options = list(options)
    if "--valid" in options:
        place = options.index("--valid") + 1
        options[place] = write(tmp_path / "valid.csv", [("c", options[place])])
    option_values = {"--model": saved, "--max-length": 17, "--out": tmp_path / "out"}
    option_values |= dict(zip(options[::2], options[1::2], strict=True))
    train = write(tmp_path / "train.csv", rows)
    arguments = [x for pair in option_values.items() for x in pair]
    with pytest.raises(ValueError, match=message) as error:
        options = parse("--train", train, *arguments)
        options.check_files()
        FineTuneRun(options)
    assert "\n" not in str(error.value) and not (tmp_path / "out").exists()


def run(out, *options):
    return recipe_runs.run("fine_tune", "--out", out, *map(str, options))


@pytest.mark.slow
def test_a_run_learns_and_its_export_answers(data, tmp_path, capsys):
    options = ("--train", data, *SMALL, "--learning-rate", 0.01, "--class-weights", "balanced")
    assert run(tmp_path, *options, "--epochs", 8) == 0
    entries = card(tmp_path)
    result = entries["results"]["valid"]
    assert result["value"] > 0.9 > result["baseline"] and result["macro_f1"] > 0.9
    names = ("model.keras", "curve.png", "labels.json", "tokenizer.model", "export/1", "best.npz")
    assert all((tmp_path / name).exists() for name in names)
    signatures = tf.saved_model.load(str(tmp_path / "export/1")).signatures
    answer = signatures["serving_default"](text=tf.constant(["a plum is here", "the rome a oslo"]))
    assert answer["label"].numpy().tolist() == [b"fruit", b"city"]
    pair = signatures["classify_pair"](text=tf.constant(["a"]), second_text=tf.constant(["plum"]))
    assert pair["probabilities"].shape == (1, 2)
    assert pair["labels"].numpy().tolist() == [[b"city", b"fruit"]]
    capsys.readouterr()
    assert run(tmp_path, *options, "--max-length", 12) == 2
    assert "started with other options" in capsys.readouterr().err


@pytest.mark.parametrize("trains_embedding", [False, True])
def test_lora_trains_adapters_and_the_head_or_the_embedding_too(trains_embedding, saved, tmp_path):
    train = write(tmp_path / "train.csv", [("a", "x"), ("b", "y"), ("c", "y")])
    options = ("--train", train, "--valid", train, "--model", saved, "--max-length", 9)
    options = (*options, *["--lora-embedding"] * trains_embedding)
    options = parse(*options, "--out", tmp_path / "out", "--lora", 2, "--epochs", 3)
    assert options.learning_rate == 0.001
    before = {w.path: w.numpy() for w in keras.models.load_model(saved).weights}
    tuning = FineTuneRun(options)
    tf.config.run_functions_eagerly(True)  # tracing would take most of the time
    try:
        tuning.train()
    finally:
        tf.config.run_functions_eagerly(False)
    (bias,) = (w for w in tuning.model.weights if w.path.endswith("head/bias"))
    assert np.abs(bias).max() > 0
    weights = [w for w in tuning.model.weights if not w.path.startswith("head/")]
    changes = {w.path: w.numpy() - before[w.path] for w in weights}
    adapted = {path: change for path, change in changes.items() if np.abs(change).max() > 0}
    table = [path for path in adapted if "embedding" in path]
    assert len(table) == int(trains_embedding)
    adapted = {path: change for path, change in adapted.items() if path not in table}
    assert len(adapted) == 6 and all("kernel" in path for path in adapted)  # of one block
    for path, change in adapted.items():
        # Of rank 2: (D, N, H) and (N, H, D) are matrices of D rows or of D columns.
        matrix = change.reshape(-1, 6) if "output" in path else change.reshape(6, -1)
        assert np.linalg.matrix_rank(matrix, tol=1e-6) <= 2
    assert all(weight.trainable for weight in tuning.model.weights)


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [("--learning-rate", 0.01), ("--lora", 3, "--learning-rate", 0.03)]
)
def test_a_killed_run_of_pairs_ends_like_an_undisturbed_one(more, saved, tmp_path, monkeypatch):
    """From a saved model; the second text decides the label."""
    generator = np.random.default_rng(5)
    rows = [(word, str(n), "ab"[n]) for word in "cdefghijkl" * 6 for n in generator.permutation(2)]
    rows = [(one, "yes" if number == "1" else "no", label) for one, number, label in rows]
    train = write(tmp_path / "pairs.csv", rows, ("text", "other", "label"))
    options = ("--model", saved, "--second-column", "other", "--max-length", 9)
    options = (*options, *more, "--epochs", 8, "--train", train)
    monkeypatch.setattr(FineTuneRun, "export", lambda self: None)
    with recipe_runs.killed_after_an_epoch(monkeypatch):
        assert run(tmp_path / "killed", *options) == 130
    weights = []
    for name in ("killed", "whole"):
        out = tmp_path / name
        assert run(out, *options) == 0 and card(out)["results"]["valid"]["value"] > 0.9
        weights.append(keras.models.load_model(out / "model.keras").get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3)


@pytest.mark.slow
def test_words_are_labelled_by_an_export_as_in_training(tmp_path):
    generator = np.random.default_rng(11)
    names = {"cat": "noun", "dog": "noun", "runs": "verb", "eats": "verb", "the": "other"}
    rows = [generator.choice([*names], generator.integers(2, 4)) for _ in range(150)]
    rows = [(" ".join(words), " ".join(names[word] for word in words)) for words in rows]
    train = write(tmp_path / "rows.tsv", rows)
    train.write_text("\n".join("\t".join(row) for row in [("text", "label"), *rows]))
    options = (*SMALL, "--vocabulary-size", 30, "--learning-rate", 0.02, "--epochs", 15)
    assert run(tmp_path / "out", "--task", "tokens", "--train", train, *options) == 0
    result = card(tmp_path / "out")["results"]["valid"]
    assert result["value"] > 0.95 and set(result["f1"]) == {"noun", "verb", "other"}
    signatures = tf.saved_model.load(str(tmp_path / "out/export/1")).signatures
    labels = signatures["tag"](text=tf.constant(["the dog eats", "runs"]))["labels"].numpy()
    assert labels.tolist() == [[b"other", b"noun", b"verb"], [b"verb", b"", b""]]


@pytest.mark.slow
def test_several_labels_are_learnt_served_and_written_back(tmp_path):
    """The first token of a BERT is in a class of transformers, with its problem and its labels."""
    generator = np.random.default_rng(13)
    names = {"cat": "animal", "dog": "animal", "plum": "fruit", "oslo": "city"}
    rows = [generator.choice([*names, "the", "a"], 3).tolist() for _ in range(200)]
    rows = [(" ".join(row), sorted({names[x] for x in row if x in names})) for row in rows]
    train = tmp_path / "rows.jsonl"
    lines = [json.dumps({"text": words, "label": labels}) for words, labels in rows]
    train.write_text("\n".join(lines))
    options = (*SMALL, "--vocabulary-size", 30, "--learning-rate", 0.02, "--epochs", 15)
    options = ("--task", "several_labels", "--train", train, "--pooling", "first", *options)
    assert run(tmp_path / "out", *options) == 0
    result = card(tmp_path / "out")["results"]["valid"]
    assert result["value"] > 0.95 > result["baseline"] and result["exact"] > 0.8
    signatures = tf.saved_model.load(str(tmp_path / "out/export/1")).signatures
    outputs = signatures["classify"](text=tf.constant(["plum the cat", "the a the"]))
    assert "label" not in outputs
    assert outputs["labels"][0].numpy().tolist() == [b"animal", b"city", b"fruit"]
    assert (outputs["probabilities"].numpy() > 0.5).tolist() == [[True, False, True], [False] * 3]
    model = keras.models.load_model(tmp_path / "out/model.keras")
    convert.to_hugging_face(model, tmp_path / "folder", labels=["animal", "city", "fruit"])
    config = json.loads((tmp_path / "folder/config.json").read_text())
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["problem_type"] == "multi_label_classification"


@pytest.mark.slow
def test_answers_are_learnt_served_and_written_back(tmp_path):
    """A question names what is asked for: the fruit or the animal of a text."""
    generator = np.random.default_rng(17)
    words = {"animal": ["cat", "dog", "fox"], "fruit": ["plum", "fig", "pear"]}
    rows = []
    for _ in range(300):
        parts = {kind: str(generator.choice(own)) for kind, own in words.items()}
        order = generator.permutation([*parts.values(), "the", "a"]).tolist()
        kind = str(generator.choice([*words]))
        rows.append({"text": " ".join(order), "question": kind, "label": parts[kind]})
    train = tmp_path / "rows.jsonl"
    train.write_text("\n".join(map(json.dumps, rows)))
    options = (*SMALL, "--vocabulary-size", 60, "--learning-rate", 0.01, "--epochs", 30)
    assert run(tmp_path / "out", "--task", "answers", "--train", train, *options) == 0
    result = card(tmp_path / "out")["results"]["valid"]
    assert result["value"] > 0.9 and result["f1"] >= result["value"]
    signatures = tf.saved_model.load(str(tmp_path / "out/export/1")).signatures
    question = tf.constant(["fruit", "animal"])
    texts = tf.constant(["the fox a fig", "pear dog a the"])
    outputs = signatures["answer"](question=question, text=texts)
    assert outputs["answer"].numpy().tolist() == [b"fig", b"dog"]
    model = keras.models.load_model(tmp_path / "out/model.keras")
    convert.to_hugging_face(model, tmp_path / "folder")
    config = json.loads((tmp_path / "folder/config.json").read_text())
    assert config["architectures"] == ["BertForQuestionAnswering"]


@pytest.mark.slow
def test_a_language_model_learns_texts(tmp_path):
    train = write(tmp_path / "rows.csv", [("abcabcabca",)] * 64, ("text",))
    options = ("--task", "language_model", "--train", train, *SMALL, "--vocabulary-size", 9)
    options = (*options, "--learning-rate", 0.02, "--epochs", 20)
    assert run(tmp_path / "out", *options) == 0
    assert card(tmp_path / "out")["results"]["valid"]["value"] < 2
    signatures = tf.saved_model.load(str(tmp_path / "out/export/1")).signatures
    continuation = signatures["serving_default"](text=tf.constant(["abcab"]))["continuation"]
    assert continuation.numpy()[0].decode() == "cabca"
