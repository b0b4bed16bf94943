"""Labels and texts as targets: classes, numbers, labels of words, tokens of language models."""

import json
import re
from types import SimpleNamespace

import keras
import numpy as np
import oracles
import pytest
import recipe_runs

from keras_attn import convert, layers, models, text
from recipes.fine_tune import language_model
from recipes.fine_tune.answers import Answers
from recipes.fine_tune.classification import Classification
from recipes.fine_tune.encoded_texts import EncodedTexts, TextBatches
from recipes.fine_tune.examples import Examples
from recipes.fine_tune.language_model import LanguageModel
from recipes.fine_tune.model_changes import change_model
from recipes.fine_tune.regression import Regression
from recipes.fine_tune.scores import class_scores, label_scores, number_scores
from recipes.fine_tune.several_labels import SeveralLabels
from recipes.fine_tune.tagging import Tagging
from recipes.fine_tune.training import FineTuneRun
from recipes.fine_tune.translation import Translation


def parse(*options):
    return recipe_runs.parse("fine_tune", *options)


def classification(labels, *options):
    examples = Examples(list(labels), None, list(labels))
    return Classification({"train": examples}, parse(*options))


def test_balanced_weights_give_each_class_the_same_sum():
    task = classification("aaab", "--class-weights", "balanced")
    weights = task.weights(task.targets(Examples("aaab", None, "aaab")))
    np.testing.assert_allclose(weights, [2 / 3, 2 / 3, 2 / 3, 2])
    assert classification("aaab").weights(np.array([0, 1])).tolist() == [1, 1]
    assert classification([True, 7, "no"]).names == ["7", "no", "true"]  # as JSON writes them


def test_a_causal_model_classifies_by_the_last_token():
    start = models.gpt(6, num_layers=1, num_heads=1, hidden_dim=2, intermediate_dim=3)
    model = classification("ab").model_of(start)
    assert (model.pooling, model.use_bias, model.encoder) == ("last", False, start.depth)
    again = classification("abc", "--pooling", "mean").model_of(model)
    assert (again.pooling, again.use_bias, again.num_classes) == ("mean", False, 3)
    with pytest.raises(ValueError, match="--pooling must be last or mean for a causal model"):
        classification("ab", "--pooling", "first").model_of(start)


def test_a_class_of_both_sides_is_trained_on_and_written(tmp_path):
    """A new head on an encoder-decoder, which has no stack that could be reversible."""
    sides = models.t5(9, num_layers=1, num_heads=2, hidden_dim=6, start_id=0)
    both = models.EncoderThenDecoder(sides.embedding, sides.encoder, sides.decoder, start_id=0)
    pooler = keras.layers.Dense(6, "tanh", name="pooler")
    start = models.Classifier(None, both, 2, pooling=layers.Pool("last", token_id=1), pooler=pooler)
    model = classification("abc").model_of(start)
    assert model.encoder is both and model.num_classes == 3
    convert.to_hugging_face(model, tmp_path / "folder")
    config = json.loads((tmp_path / "folder/config.json").read_text())
    assert config["architectures"] == ["T5ForSequenceClassification"]
    with pytest.raises(ValueError, match="--depth reversible needs a --model of one stack"):
        change_model(start, parse("--model", "a", "--depth", "reversible"))


def test_scores_of_classes_count_each_class():
    scores = class_scores(np.array([0, 0, 1, 0]), np.array([0, 1, 1, 0]), ["a", "b", "c"], "texts")
    assert scores["value"] == 0.75 and scores["baseline"] == 0.75
    assert scores["f1"] == {"a": pytest.approx(0.8), "b": pytest.approx(2 / 3), "c": None}
    assert scores["macro_f1"] == pytest.approx((0.8 + 2 / 3) / 2)
    wrong = class_scores(np.array([0, 0]), np.array([0, 2]), ["a", "b", "c"], "texts")
    assert wrong["f1"] == {"a": pytest.approx(2 / 3), "b": None, "c": 0}


NUMBERS = Examples("abc", None, ["1", 3.0, "8"])


def test_a_regression_trains_on_standardised_numbers():
    task = Regression({"train": NUMBERS}, parse("--task", "regression"))
    targets = task.targets(NUMBERS)
    np.testing.assert_allclose([targets.mean(), targets.std()], [0, 1], atol=1e-6)
    results = number_scores(np.array([1.0, 3.0, 8.0]), np.array([1.0, 4.0, 9.0]), 4)
    assert results["value"] == pytest.approx(2 / 3) and results["baseline"] == pytest.approx(8 / 3)
    assert results["r2"] == pytest.approx(1 - 2 / 26)
    for equal in ([3.0], [3.0, 3.0]):  # whose variance is 0
        assert number_scores(np.array(equal), np.array(equal) - 1, 1.0)["r2"] is None


@pytest.mark.parametrize(
    "label", [True, "1_05", "\uff11", "nan", "1e999", 10**400, None, "1,5", ""]
)
def test_what_is_no_finite_number_is_refused_with_its_line(label):
    labels = Examples("ab", None, [" -2.5e1 ", label], [2, 7], "a.jsonl")
    message = (
        f"'label' must have finite numbers. Received: {label!r} in line 7 of the file a.jsonl."
    )
    with pytest.raises(ValueError, match=f"{re.escape(message)}$"):
        Regression({"train": labels}, parse("--task", "regression"))


@pytest.mark.parametrize(
    "labels",
    [
        ["pos", "pos "],
        ["pos", "pos\u200b"],
        ["on  time", "on\u00a0time"],
        ["\u00e4", "a\u0308"],
        [1, 1.0],
        ["1", "+1.00"],
        [1, True],
        ["0", False],
        [1000, "1e3"],
    ],
)
def test_labels_that_differ_by_their_writing_are_refused_with_their_lines(labels):
    texts, lines, message = "abc", [3, 2, 5], "'label' must write each label in one way. Received: "
    for task, row in ((Classification, lambda label: label), (Tagging, lambda label: [label])):
        train = Examples(texts, None, [*map(row, ["other", *labels])], lines, "a.jsonl")
        with pytest.raises(ValueError, match=message) as error:
            task({"train": train}, parse())
        for line in (2, 5):
            assert f"in line {line} of the file a.jsonl" in str(error.value)
    train = Examples("ab", None, ["other", labels[0]], lines, "a.jsonl")
    with pytest.raises(ValueError, match=f"{message}.*in row 1"):
        Classification({"train": train, "valid": Examples("a", None, labels[1:])}, parse())


def test_labels_of_different_meaning_stay_apart(capsys):
    long = ["9007199254740993", "9007199254740992"]  # equal as floats
    names = ["1_05", "105", "a b", "ab", "true", "2", f"1e{'0' * 29}", *long]
    assert classification(names).names == sorted(names) and not capsys.readouterr().out
    assert classification(["US", "us"]).names == ["US", "us"]
    assert "differ by capitals are not the same: 'US' in row 1 and 'us'" in capsys.readouterr().out


def test_a_label_that_training_lacks_is_named_with_its_line():
    train = Examples("ab", None, ["x", "y"], [2, 3], "a.csv")
    valid = Examples("ab", None, ["x", "z"], [2, 5], "b.csv")
    with pytest.raises(ValueError, match="rows of valid .* 'z', .* in line 5 of the file b.csv"):
        Classification({"train": train, "valid": valid}, parse())


@pytest.mark.slow
def test_a_regression_ends_in_the_units_of_its_labels():
    task = Regression({"train": NUMBERS}, parse("--task", "regression"))
    sizes = {"num_layers": 1, "num_heads": 1, "hidden_dim": 2, "intermediate_dim": 3}
    model = task.model_of(models.bert(5, **sizes))
    oracles.scramble(model)
    ids = np.array([[1, 2], [3, 4]])
    before = np.asarray(model(ids))
    task.finish(model)
    np.testing.assert_allclose(np.asarray(model(ids)), before * np.sqrt(26 / 3) + 4, rtol=1e-5)


def test_each_epoch_has_all_rows_once_in_an_order_of_its_own():
    lengths = np.array([3, 1, 2, 5, 4])
    ids = np.arange(25).reshape(5, 5)
    batches = TextBatches(
        EncodedTexts({"token_ids": ids}, lengths, np.arange(5), np.ones(5)), 2, seed=1
    )
    orders = []
    for epoch in (0, 1, 0):
        epoch_batches = [batches.batch(epoch, index) for index in range(len(batches))]
        orders.append(np.concatenate([targets for _, targets, _ in epoch_batches]).tolist())
        for inputs, targets, _ in epoch_batches:
            width = lengths[targets].max()
            np.testing.assert_array_equal(inputs["token_ids"], ids[targets, :width])
    assert sorted(orders[0]) == sorted(orders[1]) == [0, 1, 2, 3, 4]
    assert orders[0] == orders[2] != orders[1]


PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] un ##able able to ##s go".split()


class _Constant:
    """Predicts the first label everywhere."""

    def __call__(self, inputs, training):
        return np.broadcast_to(np.eye(2)[0], (*inputs["token_ids"].shape, 2))


def test_the_first_token_of_a_word_has_its_label():
    """As the export reads words; a word without tokens, or beyond the length, has none."""
    examples = Examples(
        ["unable to  gos", ["go", "\u200b", "to"]], None, ["A B A", ["B", "A", "A"]]
    )
    task = Tagging({"train": examples}, parse("--task", "tokens", "--max-length", "6"))
    rows = task.rows(SimpleNamespace(pad_id=0), text.WordPiece(PIECES), examples)
    assert rows.inputs["token_ids"].tolist() == [[2, 5, 6, 8, 10, 3], [2, 10, 8, 3, 0, 0]]
    assert rows.targets.tolist() == [[-1, 0, -1, 1, 0, -1], [-1, 1, 0, -1, -1, -1]]
    assert rows.lengths.tolist() == [6, 4]
    result = task.evaluate(_Constant(), task.batches(rows), examples)
    assert result["value"] == 3 / 5
    assert result["signature"].startswith("5 words")
    assert "1 more have no token within --max-length" in result["signature"]


def test_a_text_has_several_labels_or_none():
    """Scores by hand: of four labels and three predicted ones, two are in both."""
    examples = Examples("abcd", None, ["x; z", ["y"], [], "z"])
    task = SeveralLabels({"train": examples}, parse("--task", "several_labels"))
    assert task.names == ["x", "y", "z"]
    expected = [[1, 0, 1], [0, 1, 0], [0, 0, 0], [0, 0, 1]]
    assert task.targets(examples).tolist() == expected
    start = models.bert(9, num_layers=1, num_heads=1, hidden_dim=2, intermediate_dim=3)
    model = task.model_of(start)
    assert model.multi_label and model.num_classes == 3
    ids = np.arange(8).reshape(4, 2)
    lengths = np.array([2, 1, 2, 1])
    rows = EncodedTexts({"token_ids": ids}, lengths, task.targets(examples), np.ones(4))
    _, targets, _ = task.batches(rows).batch(0, 0)
    assert targets.shape == (4, 3)  # not cut to two tokens
    predicted = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 0], [1, 0, 0]], bool)
    scores = label_scores(np.array(expected, bool), predicted, task.names)
    assert scores["value"] == pytest.approx(2 * 2 / (4 + 3)) and scores["exact"] == 0.5
    f1 = {"x": pytest.approx(2 / 3), "y": 1.0, "z": 0.0}
    assert scores["f1"] == f1 and scores["macro_f1"] == pytest.approx(5 / 9)
    assert scores["baseline"] == pytest.approx(2 * 2 / (4 + 4))  # z for each text


def test_an_answer_is_found_among_the_tokens_of_its_text():
    """Also from inside a token; the second answer is cut off, the third is not the first "go"."""
    labels = ["able to", "go", {"text": "go", "start": 6}, "nab"]
    texts = ["unable to go", "to to to to to to go", "go to go", "unable to"]
    examples = Examples(texts, ["to go", "to", "go", "to"], labels)
    task = Answers({"train": examples}, parse("--task", "answers", "--max-length", "10"))
    model = models.bert(len(PIECES), num_layers=1, num_heads=1, hidden_dim=2, intermediate_dim=3)
    rows = task.rows(model, text.WordPiece(PIECES), examples)
    # [CLS] to go [SEP] un ##able to go [SEP], and so on.
    assert rows.inputs["token_ids"][0].tolist()[:9] == [2, 8, 10, 3, 5, 6, 8, 10, 3]
    assert rows.inputs["segment_ids"][0].tolist()[:9] == [0] * 4 + [1] * 5
    assert rows.targets.tolist() == [[5, 6], [-1, -1], [5, 5], [3, 4]]
    batches = task.batches(rows)
    assert batches.batch(0, 0)[1].shape == (4, 2)
    logits = np.zeros((4, 10, 2), "float32")
    for row, (first, last) in enumerate([(5, 6), (3, 3), (4, 5), (3, 3)]):
        logits[row, first, 0] = logits[row, last, 1] = 9
    result = task.evaluate(lambda inputs, training: logits, batches, examples)
    assert result["value"] == 1 / 4 and result["f1"] == pytest.approx((1 + 0 + 2 / 3 + 2 / 3) / 4)
    assert result["signature"] == "4 questions; of 1 the answer is beyond --max-length"
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = [-np.log(probabilities[r, rows.targets[r, e], e]) for r in (0, 2, 3) for e in (0, 1)]
    weights = np.ones(4, "float32")
    loss = task.compile_arguments()["loss"](rows.targets, logits, weights)
    assert float(loss) == pytest.approx(np.mean(expected), rel=1e-5)


@pytest.mark.parametrize("label", ["stop", "", 7, {"text": "go", "start": 4}, {"start": 0}])
def test_an_answer_that_is_not_in_its_text_is_refused_with_its_line(label):
    examples = Examples(["to", "go to"], ["a", "b"], ["to", label], [2, 5], "a.jsonl")
    with pytest.raises(ValueError, match="answers that are in their texts. .* line 5 of the file"):
        Answers({"train": examples}, parse("--task", "answers"))


def test_a_row_needs_a_label_for_each_word():
    examples = Examples(["a b", "c d e"], None, ["x y", "x y"])
    with pytest.raises(ValueError, match="3 words and 2 labels in row 2."):
        Tagging({"train": examples}, parse("--task", "tokens"))


def test_a_causal_model_predicts_each_next_token_up_to_the_end():
    tokenizer = text.Characters("ab")
    task = LanguageModel({}, parse("--task", "language_model"))
    start = models.gpt(6, num_layers=1, num_heads=1, hidden_dim=2, intermediate_dim=3)
    rows = task.rows(task.model_of(start), tokenizer, Examples(["abb", "a"], None, ["", ""]))
    assert rows.inputs["token_ids"].tolist() == [[4, 5, 5], [4, 3, 0]]
    assert rows.targets.tolist() == [[5, 5, 3], [3, -1, -1]]
    (inputs, targets, _) = task.batches(EncodedTexts(*rows)).batch(0, 0)
    assert inputs["token_ids"].shape == targets.shape == (2, 3)


def test_texts_that_fill_the_length_are_counted(capsys):
    tokenizer, examples = text.Characters("ab"), Examples(["abb", "a"], None, ["", ""])
    for length, count in ((5, 0), (4, 1)):
        task = LanguageModel({}, parse("--task", "language_model", "--max-length", str(length)))
        start = models.gpt(6, num_layers=1, num_heads=1, hidden_dim=2, intermediate_dim=3)
        run = SimpleNamespace(task=task, model=task.model_of(start), tokenizer=tokenizer)
        run.options, run.splits = task.options, {"valid": examples}
        FineTuneRun._rows(run, "valid")
        said = capsys.readouterr().out
        assert f"valid: {count} of 2 texts fill" in said if count else not said


def test_a_target_begins_with_the_first_token_and_ends_with_the_last():
    examples = Examples(["ab", "b"], None, ["b", "aab"])
    task = Translation({"train": examples}, parse("--task", "translation"))
    rows = task.rows(SimpleNamespace(pad_id=0), text.Characters("ab"), examples)
    assert rows.inputs["source_ids"].tolist() == [[4, 5, 3], [5, 3, 0]]
    assert rows.inputs["target_ids"].tolist() == [[2, 5, 3, 0], [2, 4, 4, 5]]
    assert rows.targets.tolist() == [[5, 3, -1, -1], [4, 4, 5, 3]]
    assert rows.lengths.tolist() == [3, 4]


def test_targets_of_marian_have_a_model_of_their_own_and_begin_with_padding():
    source, target = (
        text.SentencePiece.train([line], vocabulary_size=size)
        for line, size in (("der hund rennt", 21), ("the cat sat", 20))
    )
    pieces = ["</s>", "<unk>", *source.vocabulary()[4:], *target.vocabulary()[4:], "<pad>"]
    ids = {piece: place for place, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = text.Marian(source.to_bytes(), target.to_bytes(), ids)
    examples = Examples(["der hund"], None, ["the cat"])
    task = Translation({"train": examples}, parse("--task", "translation"))
    rows = task.rows(SimpleNamespace(pad_id=ids["<pad>"]), tokenizer, examples)
    assert rows.inputs["target_ids"][0, 0] == ids["<pad>"]
    (expected,) = tokenizer.for_targets().encode_as_lists(["the cat"])
    assert rows.targets[0].tolist() == [*expected, ids["</s>"]]


def test_special_tokens_are_not_masked(monkeypatch):
    monkeypatch.setattr(language_model, "_RATE", 0.5)
    task = LanguageModel({}, parse("--task", "language_model", "--batch-size", "200"))
    sizes = {"num_layers": 1, "num_heads": 1, "hidden_dim": 2, "intermediate_dim": 3}
    model = task.model_of(models.bert(len(PIECES), **sizes))
    examples = Examples(["unable to gos"] * 199 + ["go"], None, [""] * 200)
    rows = task.rows(model, text.WordPiece(PIECES), examples)
    inputs, targets, _ = task.batches(rows).batch(0, 0)
    ids, tokens = rows.inputs["token_ids"], inputs["token_ids"]
    is_special = np.isin(ids, [0, 2, 3])
    np.testing.assert_array_equal(tokens[is_special], ids[is_special])
    assert (targets[is_special] == -1).all()
    chosen = targets >= 0
    np.testing.assert_array_equal(targets[chosen], ids[chosen])
    np.testing.assert_array_equal(tokens[~chosen], ids[~chosen])
    assert 0.4 < chosen[~is_special].mean() < 0.6
    assert 0.7 < (tokens == 4)[chosen].mean() < 0.9 and tokens.max() < len(PIECES)
    assert not np.isin(tokens[chosen], [0, 1, 2, 3]).any()
    again = task.batches(rows).batch(0, 0)[0]["token_ids"]
    np.testing.assert_array_equal(tokens, again)
    monkeypatch.setattr(language_model, "_RATE", 0.0)
    _, targets, _ = task.batches(rows).batch(0, 0)
    assert ((targets >= 0).sum(axis=1) == 1).all()  # each text has one at least
