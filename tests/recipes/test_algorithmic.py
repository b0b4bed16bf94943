"""The recipe from the command line: its data against plain arithmetic, whole runs, bad input."""

import json

import keras
import numpy as np
import pytest
import recipe_runs
import tensorflow as tf
from recipe_runs import card, error_of

from recipes.algorithmic.batches import TRAIN, Batches, is_held_out
from recipes.algorithmic.options import SEQUENCES
from recipes.algorithmic.sequence_run import SequenceRun
from recipes.algorithmic.tasks import SHORTEST, SYMBOLS, TASKS, carries

TRAIN_LENGTH = 5
SMALL = [
    *("--train-length", str(TRAIN_LENGTH), "--num-layers", "2", "--hidden-dim", "4"),
    *("--batch-size", "8", "--steps", "4", "--epochs", "2", "--test-examples", "11"),
    *("--learning-rate", "0.01"),
]


def run(out, *options):
    return recipe_runs.run("algorithmic", "--out", out, *SMALL, *options)


def parse(*options):
    return recipe_runs.parse("algorithmic", *options)


def written(rows):
    return ["".join(SYMBOLS[symbol] for symbol in row if symbol >= 0) for row in rows]


def drawn(task, lengths, width=13):
    """Sources and targets as text."""
    sequences = TASKS[task](np.random.default_rng(0), np.array(lengths), width)
    assert sequences.sources.shape == sequences.targets.shape == (len(lengths), width)
    assert [len(source) for source in written(sequences.sources)] == list(lengths)
    return written(sequences.sources), written(sequences.targets), sequences


ANSWERS = {
    "copy": lambda source: source,
    "reverse": lambda source: source[::-1],
    "addition": lambda source: str(sum(int(n[::-1]) for n in source.split("+")))[::-1],
}


@pytest.mark.parametrize("task", SEQUENCES)
def test_targets_follow_from_arithmetic(task):
    lengths = [*range(SHORTEST[task], 14)] * 30
    sources, targets, _ = drawn(task, lengths)
    assert targets == [ANSWERS[task](source) for source in sources]
    assert set("".join(sources)) == set(SYMBOLS if task == "addition" else SYMBOLS[:-1])
    for source in sources if task == "addition" else []:
        numbers = source.split("+")
        assert len(numbers[0]) <= len(source) // 2
        assert all(number == "0" or number[-1] != "0" for number in numbers)


def test_a_carry_is_as_long_as_the_digits_that_it_changes():
    sources, targets, sequences = drawn("addition", [*range(3, 14)] * 30)
    longest = 0
    for source, target, carry_lengths in zip(sources, targets, carries(sequences.sources)):
        a, b = (int(number[::-1]) for number in source.split("+"))
        for place in range(len(target)):
            # Without the digits from so many places on there is no carry here.
            parts = [
                sum(n % 10**place // 10**start * 10**start for n in (a, b)) >= 10**place
                for start in range(place + 1)
            ]
            assert carry_lengths[place] == (
                place - max(s for s, c in enumerate(parts) if c) if any(parts) else 0
            )
            longest = max(longest, carry_lengths[place])
    assert longest > 1


def test_parity_labels_an_odd_number_of_positive_signs():
    batches = Batches("parity", 7, 7, 64, 0, 0)
    inputs, labels = batches.training(1).batch(0, 0)
    assert inputs.shape == (64, 1, 7) and set(np.unique(inputs)) == {-1, 0, 1}
    lengths = set()
    for (vector,), (label,) in zip(inputs, labels):
        length = int(np.abs(vector).sum())
        assert not vector[length:].any()  # what is not 0 comes first
        assert label == sum(1 for number in vector if number > 0) % 2
        lengths.add(length)
    assert lengths == set(range(1, 8)) and set(labels[:, 0]) == {0, 1}


def test_offsets_shift_a_row_and_change_nothing_else():
    batches = Batches("reverse", TRAIN_LENGTH, 10, 32, 3, 0)
    offsets = set()
    inputs, labels = batches.training(1).batch(0, 0)
    for source, target, label in zip(inputs["source_ids"], inputs["target_ids"], labels):
        offset = int(np.flatnonzero(target == 2)[0])
        n = int(np.flatnonzero(source == 3)[0]) - offset
        assert not source[:offset].any() and not source[offset + n + 1 :].any()
        digits = source[offset : offset + n]
        assert 1 <= n <= TRAIN_LENGTH and (digits >= 4).all() and (digits <= 13).all()
        assert not target[:offset].any() and not target[offset + n + 1 :].any()
        np.testing.assert_array_equal(target[offset + 1 : offset + n + 1], digits[::-1])
        assert not label[:offset].any() and not label[offset + n + 1 :].any()
        np.testing.assert_array_equal(label[offset : offset + n + 1], [*digits[::-1], 3])
        offsets.add(offset)
    assert offsets == {0, 1, 2, 3}
    again = Batches("reverse", TRAIN_LENGTH, 10, 32, 3, 0).training(1)
    np.testing.assert_array_equal(again.batch(0, 0)[1], labels)
    other = Batches("reverse", TRAIN_LENGTH, 10, 32, 3, 1).training(1)
    assert np.any(other.batch(0, 0)[1] != labels)


@pytest.mark.parametrize(
    "task, longest_by_step",
    [("reverse", [1, 1, 2, 3, 3, 4, 5, 5, 6, 7]), ("addition", [3, 3, 4, 4, 5, 5, 6, 6, 7, 7])],
)
def test_a_curriculum_draws_longer_rows_step_by_step(task, longest_by_step):
    plain, growing = (Batches(task, 7, 11, 97, 2, 0, steps) for steps in (0, 10))

    def longest(batches, index):
        inputs, _ = batches.training(4).batch(*divmod(index, 4))
        return max(np.sum(inputs["source_ids"] != 0, axis=1)) - 1  # but for the end mark

    assert [longest(growing, step) for step in range(10)] == longest_by_step
    assert longest(growing, 10) == longest(plain, 0) == 7
    labels = [batches.validation(1).batch(0, 0)[1] for batches in (plain, growing)]
    np.testing.assert_array_equal(*labels)  # validation has all lengths from the start


@pytest.mark.parametrize("task", TASKS)
def test_no_test_example_is_trained_on(task):
    batches = Batches(task, 4, 8, 256, 0, 0)
    trained = [batches.draw(TRAIN, index, held_out=False)[0] for index in range(20)]
    trained = {tuple(row[row >= 0]) for rows in trained for row in rows}
    lengths = range(SHORTEST[task], 5)
    tested = [batches.of_length(length, 300) for length in lengths]
    for length, examples in zip(lengths, tested):
        rows = [tuple(row[row >= 0]) for row in examples[0]]
        assert len(set(rows)) == len(rows) and all(len(row) == length for row in rows)
        assert trained.isdisjoint(rows)
    assert sum(len(examples[0]) for examples in tested) > 2
    assert len(batches.of_length(8, 17)[0]) >= 10
    assert {len(row) for row in trained} == set(lengths)


def test_a_tenth_is_held_out_with_any_padding():
    rows = np.random.default_rng(0).integers(0, 11, (5000, 7))
    held_out = is_held_out(rows)
    assert abs(held_out.mean() - 0.1) < 0.02
    padded = np.pad(rows, ((0, 0), (0, 3)), constant_values=-1)
    np.testing.assert_array_equal(is_held_out(padded), held_out)


@pytest.mark.slow
def test_a_run_writes_card_pictures_and_export(tmp_path, capsys):
    options = ("--task", "addition", "--test-lengths", "5", "9")
    assert run(tmp_path, *options) == 0
    pictures = "curve", "by_length", "steps", "steps_by_carry", "halting_source", "halting_target"
    for name in ("card.json", *(f"{picture}.png" for picture in pictures)):
        assert (tmp_path / name).stat().st_size > 0
    facts, said = card(tmp_path), capsys.readouterr().out
    assert list(facts["by_length"]) == ["3", "4", "5", "9"] and facts["steps"] == 4
    trained = [facts["by_length"][n]["sequence_accuracy"] for n in "345"]
    assert facts["results"]["trained lengths"]["value"] == pytest.approx(np.mean(trained))
    assert list(facts["results"]) == ["trained lengths", "length 9"]
    assert "length 9: sequence_accuracy" in said
    assert list(facts["steps_by_position"]["source, length 9"]) == [str(n) for n in range(1, 11)]
    # The export is right where the model is right.
    model = keras.saving.load_model(tmp_path / "model.keras")
    batches = Batches("addition", TRAIN_LENGTH, 9, 8, 4, 0)
    examples = batches.of_length(5, 11)
    loaded = tf.saved_model.load(str(tmp_path / "export" / "1"))
    answer = loaded.signatures["serving_default"](text=tf.constant(written(examples.sources)))
    inputs, labels = batches.as_arrays(examples)
    right = (np.argmax(model(inputs), axis=-1) == labels) | (labels == 0)
    exact = [a.decode() for a in answer["translation"].numpy()] == np.array(
        written(examples.targets)
    )
    np.testing.assert_array_equal(exact, right.all(axis=1))
    # A finished run trains no more.
    again = SequenceRun(parse("--out", tmp_path, *SMALL, *options))
    again.train()
    assert again.steps() == 4
    assert len((tmp_path / "history.csv").read_text().splitlines()) == 3
    plain = SequenceRun(parse("--out", tmp_path / "plain", *SMALL, "--model", "transformer"))
    assert plain.act_steps() == {}  # without ACT


@pytest.mark.slow
@pytest.mark.parametrize("model", ["rnn", "act_rnn"])
def test_a_run_of_parity_is_exported_and_counts_the_steps_of_act(model, tmp_path):
    assert run(tmp_path, "--task", "parity", "--model", model, "--steps", "1", "--epochs", "1") == 0
    has_steps, by_length = model == "act_rnn", card(tmp_path)["by_length"]
    assert (tmp_path / "steps.png").exists() == has_steps and by_length
    assert all(1 <= row["steps"] <= 2 for row in by_length.values() if has_steps)
    model = keras.saving.load_model(tmp_path / "model.keras")
    examples = Batches("parity", TRAIN_LENGTH, TRAIN_LENGTH, 8, 0, 0).of_length(TRAIN_LENGTH, 9)
    served = tf.saved_model.load(str(tmp_path / "export" / "1"))
    answer = served.signatures["serving_default"](vectors=tf.constant(examples.inputs))
    np.testing.assert_allclose(*answer.values(), model(examples.inputs), atol=1e-5)


def test_the_option_of_a_curriculum_is_a_share_of_the_steps(tmp_path):
    run = SequenceRun(parse("--out", tmp_path, *SMALL, "--curriculum", "0.5"))
    rows = [run.batches.training(4).batch(0, step)[0]["source_ids"] for step in range(4)]
    assert [max(np.sum(ids != 0, axis=1)) - 1 for ids in rows] == [1, 3, 5, 5]


def fails(capsys, out, *options):
    return error_of(capsys, "algorithmic", "--out", out, *SMALL, *options)


def test_bad_options_are_reported(capsys, tmp_path):
    assert "--model must be one of act_rnn, rnn" in fails(
        capsys, tmp_path, "--task", "parity", "--model", "transformer"
    )
    assert "--depth is for" in fails(capsys, tmp_path, "--model", "transformer", "--depth", "act")
    assert "not for parity" in fails(capsys, tmp_path, "--task", "parity", "--max-offset", "2")
    parity = "--task", "parity", "--curriculum", "0.5"
    assert "--curriculum is not for parity, whose shortest" in fails(capsys, tmp_path, *parity)
    for name, value in (("num-heads", 2), ("intermediate-dim", 7), ("dropout", 0.1)):
        assert f"--{name} is not for parity, whose networks are no transformers" in fails(
            capsys, tmp_path, "--task", "parity", f"--{name}", value
        )
    for model in (
        ("--task", "parity", "--model", "rnn"),
        ("--model", "transformer"),
        ("--depth", "recurrent"),
    ):
        for name in ("ponder-loss", "halting-bias"):
            said = fails(capsys, tmp_path, *model, f"--{name}", 0.5)
            assert f"--{name} is not for models without ACT. Received: --{name} 0.5" in said
    assert "--test-lengths must be at least 3" in fails(
        capsys, tmp_path, "--task", "addition", "--test-lengths", "2"
    )
    assert "must divide" in fails(capsys, tmp_path, "--num-heads", "3")
    assert not list(tmp_path.iterdir())
    assert parse("--task", "parity", "--hidden-dim", "30").hidden_dim == 30  # it has no heads
    several = "--task", "parity", "--jit-compile", "--strategy", "mirrored"
    assert "--jit-compile" in fails(capsys, tmp_path, *several)
    settings = {**parse(*SMALL).identity(), "task": "reverse"}
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    assert "task='reverse', now 'copy'" in fails(capsys, tmp_path)
