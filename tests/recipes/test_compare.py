"""The recipe from the command line; every value of every axis builds a model."""

import contextlib
import json
import math
import signal

import keras
import numpy as np
import pytest
import recipe_runs

from keras_attn.callbacks import Terminated
from recipes.common.dry_run import Estimate
from recipes.common.files import write_json
from recipes.compare import axes
from recipes.compare.callbacks import StopOnSignal
from recipes.compare.model import PLAIN
from recipes.compare.options import AXES
from recipes.compare.summary import Summary, best, ranked, sentences, table
from recipes.compare.training import Comparison, _read
from recipes.text.segments import make_validation

SMALL = [
    *("--num-layers", "1", "--num-heads", "2", "--hidden-dim", "8", "--intermediate-dim", "7"),
    *("--context", "12", "--batch-size", "3", "--steps", "4", "--epochs", "2"),
    *("--valid-tokens", "50"),
]


def parse(*options):
    return recipe_runs.parse("compare", *options)


def run(out, *options):
    text = out.parent / "text.txt"
    text.write_text("to be or not to be, that is the question\n" * 30)
    return recipe_runs.run("compare", "--text", text, "--out", out, *SMALL, *options)


@pytest.mark.slow
def test_a_comparison_trains_missing_values_and_writes_table_and_card(tmp_path, capsys):
    out, memory = tmp_path / "out", tmp_path / "out" / "memory"
    assert run(out, "--axis", "memory", "--values", "segment", "--seeds", "1") == 0
    first = (memory / "segment-1.json").read_bytes()
    both = "--axis", "memory", "--values", "none", "segment", "--seeds", "0", "1"
    assert run(out, *both) == 0
    assert (memory / "segment-1.json").read_bytes() == first  # not trained again
    results = json.loads((memory / "card.json").read_text())["results"]
    assert list(results) == ["none", "segment"]
    for result in results.values():
        assert list(result["bits_per_character"]) == ["0", "1"] and result["seconds_per_step"] > 0
        assert [len(curve) for curve in result["bits_per_character"].values()] == [2, 2]
        assert len(set(map(str, result["bits_per_character"].values()))) == 2  # seeds differ
    lines = (memory / "table.md").read_text().splitlines()
    assert len([line for line in lines if line.startswith("| `")]) == 2
    assert (memory / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert run(out, "--axis", "memory", "--values", "none") == 0
    assert (memory / "table.md").read_text().splitlines() == lines  # nothing was lost
    assert json.loads((memory / "card.json").read_text())["results"] == results
    for damaged in ("{", "[]", "{}"):
        (memory / "none-0.json").write_text(damaged)
        assert run(out, "--axis", "memory", "--values", "segment") == 2
        assert f"{memory / 'none-0.json'} is damaged" in capsys.readouterr().err
    assert run(out, "--axis", "loss", "--dropout", "0.5") == 2
    assert "started with other options" in capsys.readouterr().err
    assert run(tmp_path / "other", "--axis", "loss", "--values", "none") == 2
    assert "--values must be among plain, label_smoothed, z_loss" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.fixture
def comparison(tmp_path):
    """A function of options that returns a comparison which has trained nothing."""
    path = tmp_path / "text.txt"
    path.write_text("to be or not to be, that is the question\n" * 30)
    return lambda *more: Comparison(parse("--text", path, *SMALL, *more, "--out", tmp_path / "out"))


def test_the_plain_model_is_counted_and_trained_once(comparison, monkeypatch):
    """Also by a process that does not write the results, and may look before they are written."""
    trained, axis = [], ("--axis", "loss", "depth")
    estimate, result = Estimate(1, 1, 1, 4, 0, [1.0]), {"bits_per_character": [2.0]}
    monkeypatch.setattr(Comparison, "_estimate", lambda self, changes, count: estimate)
    for values, lines in (("plain", "stack"), ["loss plain:"]), (("stack",), ["depth stack:"]):
        said = comparison(*axis, "--values", *values).dry_run()
        assert [line for line in said if line.endswith(":")] == lines
    result |= {"parameters": 7, "seconds_per_step": 0.5}
    monkeypatch.setattr(Comparison, "_train", lambda *arguments: trained.append(1) or result)
    other = comparison(*axis, "--values", "plain", "stack")
    other.is_first = False
    for name in ("loss", "depth"):
        assert [*other.train_missing(name)] == [{"loss": "plain", "depth": "stack"}[name]]
    assert len(trained) == 1


def test_the_validation_has_a_target_for_each_row(tmp_path, capsys):
    path = tmp_path / "text.txt"
    path.write_text("to be or not to be, that is the question\n" * 30)
    options = ("--axis", "memory", "--text", path, *SMALL, "--valid-tokens", "1")
    comparison = Comparison(parse(*options, "--out", tmp_path / "out"))
    for has_memory in (False, True):
        ids = comparison.corpus.ids["valid"]
        _, targets = make_validation(ids, comparison.options, has_memory).batch(0, 0)
        assert np.count_nonzero(targets) == 3
    assert run(tmp_path / "out", "--axis", "memory", "--batch-size", "61") == 2
    assert "valid with 61 tokens, --batch-size 61" in capsys.readouterr().err
    assert run(path, "--axis", "memory") == 2
    assert "--out must be a directory" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_signal_ends_training_after_its_batch():
    seen = []

    def send(batch, logs=None):
        seen.append(batch)
        if batch == 1:
            with contextlib.suppress(KeyboardInterrupt):  # as Keras does on JAX
                signal.raise_signal(signal.SIGTERM)

    model, rows = keras.Sequential([keras.layers.Dense(1)]), np.ones((5, 1))
    model.compile("sgd", "mse", run_eagerly=True)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        callbacks = [keras.callbacks.LambdaCallback(on_train_batch_begin=send), StopOnSignal()]
        with pytest.raises(Terminated):
            model.fit(rows, rows, batch_size=1, verbose=0, callbacks=callbacks)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [0, 1]


def called(model):
    """Return the logits of a model, which are its first call."""
    inputs = {"token_ids": np.array([[5, 7, 9, 4, 6]])}
    if model.memory is not None:
        inputs.update(model.initial_memory(1))
    outputs = model(inputs)
    return outputs["logits"] if isinstance(outputs, dict) else outputs


@pytest.mark.slow
@pytest.mark.parametrize("axis", AXES)
def test_every_value_builds_a_different_model_with_weights_of_its_own(axis):
    options = parse("--axis", axis, *SMALL)
    values, made = axes.values(axis, options), []
    for changes in values.values():
        model, other = changes.build(11, options), changes.build(11, options)
        logits = called(model)
        assert logits.shape == (1, 5, 11) and np.isfinite(logits).all()
        assert {*map(id, model.variables)}.isdisjoint(map(id, other.variables))
        made.append(json.dumps(model.get_config(), sort_keys=True))
    assert axis == "loss" or len(set(made)) == len(values)


def test_the_reference_is_the_plain_model():
    for axis in set(AXES) - {"head_size", "memory"}:
        reference, *others = axes.values(axis, parse("--axis", axis, *SMALL)).values()
        assert reference is PLAIN and PLAIN not in others, axis


@pytest.mark.parametrize(
    "axis, name, weight",
    [("pattern", "adaptive_span", "span"), ("score", "t5_bias", "score")],
)
def test_each_layer_has_weights_of_its_own(axis, name, weight):
    options = parse("--axis", axis, *SMALL)
    model = axes.values(axis, options)[name].build(11, options)
    paths = [w.path for w in model.trainable_variables if weight in w.path]
    assert len(paths) == options.num_layers


def test_layers_in_turn_have_both_parts_of_a_pattern():
    options = parse("--axis", "pattern", *SMALL, "--num-layers", "2")
    model = axes.values("pattern", options)["fixed_in_turn"].build(11, options)
    factors = [block.attention.pattern.factor for block in model.depth.blocks]
    assert factors == ["block", "summary"]


def summary(*last, seconds=0.5):
    results = {
        seed: {"bits_per_character": [3.0, x], "parameters": 1234, "seconds_per_step": seconds}
        for seed, x in enumerate(last)
    }
    return Summary.of(results)


def test_the_table_has_the_best_value_first():
    summaries = {"one": summary(2.25, 2.35), "two": summary(2.125, 2.125)}
    assert table("head_size", summaries)[2:] == [
        "| `two` | 2.125 | 0.000 | 2.125, 2.125 | 1,234 | 0.500 |",
        "| `one` | 2.300 | 0.071 | 2.250, 2.350 | 1,234 | 0.500 |",
    ]
    assert "| `one` | 2.250 |  | 2.250 |" in table("score", {"one": summary(2.25)})[2]


def test_a_difference_counts_above_twice_the_spread():
    summaries = {
        "reference": summary(2.0, 2.1),
        "better": summary(1.7, 1.8),
        "near": summary(2.1, 2.2),
        "noisy": summary(2.2, 2.9),
        "worse": summary(2.3, 2.3),
        "lost": summary(2.0, float("nan")),
    }
    first, _, *groups = sentences(summaries)
    assert "`reference`" in first and "0.071" in first  # the deviation of two numbers 0.1 apart
    assert groups == [
        "- Better: `better`.",
        "- Worse: `worse`.",
        "- Not told apart: `near`, `noisy`.",
        "- Diverged: `lost`.",
    ]
    assert list(ranked(summaries))[-1] == "lost"
    assert sentences({"one": summary(2.0)}) == ["One seed, or one value, shows no spread."]


def test_a_result_that_diverged_is_read_as_it_was(tmp_path):
    result = {"bits_per_character": [2.5, math.nan], "parameters": 7, "seconds_per_step": 0.5}
    write_json(tmp_path / "a-0.json", result)
    (tmp_path / "a-1.json").write_text(json.dumps(result))  # as an earlier version wrote it
    for name in ("a-0.json", "a-1.json"):
        one = Summary.of({0: _read(tmp_path / name)})
        assert one.last[0] != one.last[0] and not one.has_learned and one.curves[0][0] == 2.5


def test_nothing_is_compared_with_a_value_that_diverged():
    nan = float("nan")
    summaries = {"reference": summary(nan, 2.0), "healthy": summary(2.0, 2.1)}
    summaries["lost"] = summary(nan, nan)
    first, _, *groups = sentences(summaries)
    assert first.startswith("`reference` diverged")
    assert groups == ["- Diverged: `lost`.", "- Not diverged: `healthy`."]
    assert best(summaries) == "best healthy of 3 values, with 2.050 bits per character"
    del summaries["healthy"]
    assert sentences(summaries)[2:] == ["- Diverged: `lost`."]
    assert best(summaries) == "all of 2 values diverged"


@pytest.mark.parametrize(
    "options, message",
    [
        ([], "--axis"),
        (["--axis", "colour"], "invalid choice"),
        (["--axis", "score", "--context", "7"], "--context must be at least 8"),
    ],
)
def test_bad_options_are_reported(options, message, capsys):
    with pytest.raises(SystemExit):
        parse(*options)
    assert message in capsys.readouterr().err
