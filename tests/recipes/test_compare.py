"""The recipe from the command line; every value of every axis builds a model."""

import contextlib
import json
import signal

import keras
import numpy as np
import pytest
import recipe_runs

from keras_attn.callbacks import Terminated
from recipes.compare.axes import axes, build
from recipes.compare.options import AXES
from recipes.compare.training import Comparison, StopOnSignal, table
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
    out = tmp_path / "out"
    assert run(out, "--axis", "memory", "--values", "segment") == 0
    first = (out / "segment.json").read_bytes()
    assert run(out, "--axis", "memory") == 0
    assert (out / "segment.json").read_bytes() == first  # not trained again
    card = json.loads((out / "card.json").read_text())
    assert list(card["results"]) == ["none", "segment"]
    for found in card["results"].values():
        assert len(found["bits_per_character"]) == 2 and found["seconds_per_step"] > 0
    lines = (out / "table.md").read_text().splitlines()
    assert lines == table("memory", card["results"]) and len(lines) == 4
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert run(out, "--axis", "memory", "--values", "none") == 0
    assert (out / "table.md").read_text().splitlines() == lines  # nothing was lost
    assert json.loads((out / "card.json").read_text())["results"] == card["results"]
    for damaged in ("{", "[]", "{}"):
        (out / "none.json").write_text(damaged)
        assert run(out, "--axis", "memory", "--values", "segment") == 2
        assert f"{out / 'none.json'} is damaged" in capsys.readouterr().err
    assert run(out, "--axis", "loss") == 2
    assert "started with other options" in capsys.readouterr().err
    assert run(tmp_path / "other", "--axis", "loss", "--values", "none") == 2
    assert "--values must be among plain, label_smoothed, auxiliary" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


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


@pytest.mark.parametrize(
    "number, end", [(signal.SIGTERM, Terminated), (signal.SIGINT, KeyboardInterrupt)]
)
def test_a_signal_ends_training_after_its_batch(number, end):
    seen = []

    def send(batch, logs=None):
        seen.append(batch)
        if batch == 1:
            with contextlib.suppress(KeyboardInterrupt):  # as Keras does on JAX
                signal.raise_signal(number)

    model, rows = keras.Sequential([keras.layers.Dense(1)]), np.ones((5, 1))
    model.compile("sgd", "mse")
    before = signal.signal(number, signal.default_int_handler)
    try:
        callbacks = [keras.callbacks.LambdaCallback(on_train_batch_begin=send), StopOnSignal()]
        with pytest.raises(end):
            model.fit(rows, rows, batch_size=1, verbose=0, callbacks=callbacks)
    finally:
        signal.signal(number, before)
    assert seen == [0, 1]


@pytest.mark.parametrize("axis", AXES)
def test_every_value_builds_a_different_model(axis):
    options = parse("--axis", axis, *SMALL)
    values = axes(options)[axis]
    ids, made = np.array([[5, 7, 9, 4, 6]]), []
    for changes in values.values():
        model = build(11, options, **changes)
        inputs = {"token_ids": ids}
        if model.memory is not None:
            inputs.update(model.initial_memory(1))
        outputs = model(inputs)
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs
        assert logits.shape == (1, 5, 11) and np.isfinite(logits).all()
        made.append(json.dumps(model.get_config(), sort_keys=True))
    assert axis == "loss" or len(set(made)) == len(values)


@pytest.mark.parametrize(
    "axis, name, weight",
    [("pattern", "adaptive_span", "span"), ("score", "t5_bias", "t5_bias")],
)
def test_each_layer_has_weights_of_its_own(axis, name, weight):
    options = parse("--axis", axis, *SMALL)
    model = build(11, options, **axes(options)[axis][name])
    found = [w.path for w in model.trainable_variables if weight in w.path]
    assert len(found) == options.num_layers


def test_the_table_has_the_best_value_first():
    results = {
        name: {"bits_per_character": [3.0, bits], "parameters": 1234, "seconds_per_step": 0.5}
        for name, bits in (("one", 2.25), ("two", 2.125))
    }
    assert table("score", results)[2:] == [
        "| `two` | 2.125 | 1,234 | 0.500 |",
        "| `one` | 2.250 | 1,234 | 0.500 |",
    ]


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
